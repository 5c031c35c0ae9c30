//! What goes wrong with links and server.

use crate::store::Harm;
use crate::world::{MS, Nanos, SECOND};

use super::leases::{READ_LEASE, before_read_lease};
use super::link::{Inner, To};

/// A link that goes silent may stay so for this long.
const LONGEST_SILENCE: Nanos = 180 * SECOND;
/// A server that is not told of the end of a connection finds out within this time.
pub(super) const KEEPALIVE: Nanos = 300 * SECOND;

/// How often the data is copied, for a replica that takes over.
const COPY_EACH: Nanos = SECOND / 4;
/// How far a replica may be behind.
const OLDEST_COPY: Nanos = 60 * SECOND;

impl Inner {
    /// Draws whether something goes wrong that does so as often, in thousandths.
    pub(super) fn happens(&self, thousandths: u32) -> bool {
        thousandths > 0
            && self.world.now() < self.faults.faults_end
            && self.world.chance(|draw| draw.u32(..1000)) < thousandths
    }

    /// How long a way takes on which nothing goes wrong.
    pub(super) fn usual_delay(&self) -> Nanos {
        self.world.chance(|draw| draw.u64(..=self.faults.latency))
    }

    /// How long the way takes of what is sent now. It may be that nothing arrives any more, for a while or
    /// for ever.
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

    /// From now on nothing arrives for a while; then all does, or the link turns out to be broken.
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

    /// Cuts a link. Of what is under way some may arrive yet.
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

    /// Cuts all links, as a server does that ends or is left.
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

    /// Does harm.
    pub(super) fn harm(&mut self, harm: &Harm) -> bool {
        self.harms += 1;
        self.world.note(|| format!("harm: {harm:?}"));
        match harm {
            Harm::SetClock(by) => self.clock += by / 1000,
            Harm::Cut { process } => {
                for link in self.links_of(*process) {
                    let told = self.world.chance(|draw| draw.u8(..4));
                    // At least one of them, most of the time.
                    let told = if told == 0 { self.world.chance(|draw| draw.u8(..4)) } else { told };
                    self.cut(link, told & 1 != 0, told & 2 != 0);
                }
            }
            Harm::Silence { process, lasts } => self.be_silent(*process, *lasts),
            Harm::Forget => {
                self.server.forget();
                // It was emptied, or it has restarted.
                if self.world.chance(|draw| draw.bool()) {
                    self.cut_all();
                }
            }
            Harm::FallBack(ago) => {
                self.fall_back(*ago);
                self.cut_all();
            }
            Harm::Evict { name, .. } => return self.evict(name),
        }
        true
    }

    /// Keeps the data for [`Harm::FallBack`], from time to time. Called before it changes.
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

    /// Half of the time it is the lock itself that goes.
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
        // What is left of it is of no use, and lasts until it ends by itself.
        let leases = beside.iter().filter(|key| is_read_lease(&String::from_utf8_lossy(key)));
        self.outlasting.extend(leases.cloned().chain([name.as_bytes().to_vec()]));
        match self.world.chance(|draw| draw.choice(&beside).filter(|_| draw.bool()).cloned()) {
            Some(key) => self.server.evict(&key),
            None => self.server.evict(name.as_bytes()),
        }
    }
}
