//! Faults of links and of the server.

use crate::store::Harm;
use crate::world::{MS, Nanos, SECOND};

use super::leases::{READ_LEASE, before_read_lease};
use super::link::{Inner, To};
use super::serve::Said;

const LONGEST_SILENCE: Nanos = 180 * SECOND;
/// Time after which a server notices the end of a connection without being told.
pub(super) const KEEPALIVE: Nanos = 300 * SECOND;

/// Time between snapshots of the data, for a replica that takes over.
const COPY_EACH: Nanos = SECOND / 4;
/// Longest lag of a replica.
const OLDEST_COPY: Nanos = 60 * SECOND;

impl Inner {
    /// True with this probability, in thousandths, while faults last.
    pub(super) fn happens(&self, thousandths: u32) -> bool {
        thousandths > 0
            && self.world.now() < self.faults.faults_end
            && self.world.chance(|draw| draw.u32(..1000)) < thousandths
    }

    pub(super) fn usual_delay(&self) -> Nanos {
        self.world.chance(|draw| draw.u64(..=self.faults.latency))
    }

    /// Draws the delay of a parcel sent now. The draw may silence the link, for a while or for ever.
    pub(super) fn delay(&mut self, link: u64, to: To) -> Nanos {
        let usual = self.usual_delay();
        let lost = if to == To::Server { self.faults.requests_lost } else { self.faults.replies_lost };
        if self.happens(lost) {
            self.falls_silent(link, to);
        }
        if !self.happens(self.faults.late) {
            return usual;
        }
        let late = self.world.chance(|draw| draw.u64(..=self.faults.late_by));
        (usual + late).min(self.faults.faults_end + usual - self.world.now())
    }

    /// Silences one direction of a link for a while; afterwards all parcels arrive, or the link breaks.
    fn falls_silent(&mut self, link: u64, to: To) {
        let (now, shortest) = (self.world.now(), 20 * MS);
        let doublings = self.world.chance(|draw| draw.u32(..14));
        let lasts = self.world.chance(|draw| draw.u64(shortest..=shortest << doublings));
        let until = (now + lasts.min(LONGEST_SILENCE)).min(self.faults.faults_end);
        let breaks = self.world.chance(|draw| draw.u8(..4)) == 0;
        self.world.note(|| format!("link {link} is silent to the {to:?} until {until}, breaks: {breaks}"));
        if breaks {
            self.cut_at(link, Some(until), Some(until), 0);
        } else if let Some(link) = self.links.get_mut(&link) {
            link.way(to).hold_until(until);
        }
    }

    pub(super) fn cut(&mut self, link: u64, tells_client: bool, tells_server: bool) {
        let now = self.world.now();
        let client = (tells_client || !self.has_heartbeats).then(|| now + self.usual_delay());
        let server = now + if tells_server { self.usual_delay() } else { self.until_keepalive() };
        self.world.note(|| format!("link {link} is cut, told: client {client:?}, server {server}"));
        let arrive = self.world.chance(|draw| draw.usize(..3));
        self.cut_at(link, client, Some(server), arrive);
    }

    fn until_keepalive(&self) -> Nanos {
        self.world.chance(|draw| draw.u64(..=KEEPALIVE))
    }

    fn cut_at(&mut self, id: u64, client: Option<Nanos>, server: Option<Nanos>, arrive: usize) {
        for (to, told) in [(To::Client, client), (To::Server, server)] {
            let Some(link) = self.links.get_mut(&id) else { return };
            if let Some(next) = link.way(to).cut(arrive, told) {
                self.arrives(next, id, to);
            }
        }
    }

    fn cut_all(&mut self) {
        let all: Vec<u64> = self.links.keys().copied().collect();
        all.into_iter().for_each(|link| self.cut(link, true, true));
    }

    fn be_silent(&mut self, process: Option<usize>, lasts: Nanos) {
        let until = self.world.now() + lasts;
        match process {
            Some(process) => {
                let silence = self.silent_until.entry(process).or_default();
                *silence = until.max(*silence);
            }
            None => self.silent_to_all_until = until.max(self.silent_to_all_until),
        }
        for link in self.links.values_mut() {
            if process.is_none_or(|process| process == link.process) {
                link.up.hold_until(until);
                link.down.hold_until(until);
            }
        }
    }

    /// Does harm. Returns false if the harm has no effect on this store.
    pub(super) fn harm(&mut self, harm: &Harm) -> bool {
        self.harms += 1;
        self.world.note(|| format!("harm: {harm:?}"));
        match harm {
            Harm::SetClock(by) => self.clock += by / 1000,
            Harm::Cut { process } => {
                for link in self.links_of(*process) {
                    let told = self.world.chance(|draw| draw.u8(..4));
                    // Mostly at least one end.
                    let told = if told == 0 { self.world.chance(|draw| draw.u8(..4)) } else { told };
                    self.cut(link, told & 1 != 0, told & 2 != 0);
                }
            }
            Harm::Silence { process, lasts } => self.be_silent(*process, *lasts),
            Harm::Forget => {
                self.server.forget();
                // The server was flushed, or restarted.
                if self.world.chance(|draw| draw.bool()) {
                    self.cut_all();
                }
            }
            Harm::FallBack(ago) => {
                self.fall_back(*ago);
                self.cut_all();
            }
            Harm::Evict { name, .. } => return self.evict(name),
            Harm::Storm { name, messages } => self.storm(name, *messages),
        }
        true
    }

    /// Takes a snapshot for [`Harm::FallBack`], from time to time. Called before the data changes.
    pub(super) fn copy(&mut self) {
        let now = self.world.now();
        if self.copies.back().is_none_or(|(at, _)| *at + COPY_EACH <= now) {
            self.copies.push_back((now, self.server.snapshot()));
            while self.copies.front().is_some_and(|(at, _)| *at + OLDEST_COPY < now) {
                self.copies.pop_front();
            }
        }
    }

    fn fall_back(&mut self, ago: Nanos) {
        let then = self.world.now().saturating_sub(ago);
        let copy = self.copies.iter().rev().find(|(at, _)| *at <= then).map(|(_, data)| data.clone());
        self.server.restore(copy.unwrap_or_default());
        self.copies.clear();
    }

    /// Lets strangers publish messages of any kind, and of none, to the channels of a name.
    fn storm(&mut self, name: &str, messages: u32) {
        const TEXTS: [&str; 6] = ["0", "1", "", "granted:1:0123456789abcdef", "granted:", "\u{fffd}?"];
        let channels = self.server.channels();
        let channels: Vec<String> = channels.into_iter().filter(|channel| channel.contains(name)).collect();
        let mut said = Said::new();
        for _ in 0..messages {
            let text = TEXTS[self.world.chance(|draw| draw.usize(..TEXTS.len()))];
            channels.iter().for_each(|channel| self.publish(channel, text, &mut said));
        }
        self.say(said);
    }

    /// Evicts the lock itself, half of the time; otherwise a key beside the lock.
    fn evict(&mut self, name: &str) -> bool {
        let (tag, own) = (format!("{{{name}}}"), format!("{name}:latchwork:"));
        let of_reader = before_read_lease(name);
        let is_read_lease = |key: &str| key.starts_with(&of_reader) && key.ends_with(READ_LEASE);
        let keys = self.server.keys(self.server_time()).into_iter().map(|key| key.name);
        let beside: Vec<_> = keys
            .filter(|key| {
                let key = String::from_utf8_lossy(key);
                key.contains(&tag) || key.starts_with(&own) || is_read_lease(&key)
            })
            .collect();
        // The remaining keys are useless, and expire by themselves.
        let leases = beside.iter().filter(|key| is_read_lease(&String::from_utf8_lossy(key)));
        self.outlasting.extend(leases.cloned().chain([name.as_bytes().to_vec()]));
        match self.world.chance(|draw| draw.choice(&beside).filter(|_| draw.bool()).cloned()) {
            Some(key) => self.server.evict(&key),
            None => self.server.evict(name.as_bytes()),
        }
    }
}
