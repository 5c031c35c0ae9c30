//! The faults, drawn from a seed. Wild phases with many faults alternate with mild ones, in which the faults
//! of the wild phase recover, so that the judge has something to judge.

use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use fleet::clock::now;
use latchwork_testkit::{Afterwards, Cut, Way};

use crate::checks::Checked;
use crate::history::FaultKind;
use crate::names::{LEASE, NAMES};
use crate::stage::{MEMBERS, Stage};

const WILD: Duration = Duration::from_secs(6);
const MILD: Duration = Duration::from_secs(8);
/// Interval at which the proxies forget their commands, which would fill the memory.
const FORGET: Duration = Duration::from_secs(1);

struct Open {
    kind: FaultKind,
    member: Option<usize>,
    since: u64,
    until: Instant,
}

pub(crate) struct Weather<'a> {
    stage: &'a mut Stage,
    rng: Rng,
    open: Vec<Open>,
}

/// Injects faults until the time is over, then heals all of them.
pub(crate) fn rage(stage: &mut Stage, rng: Rng, time: Duration) -> Checked {
    let mut weather = Weather { stage, rng, open: Vec::new() };
    let start = Instant::now();
    let mut forget = start;
    // The members start undisturbed.
    let mut next = start + Duration::from_secs(1);
    while start.elapsed() < time {
        let now = Instant::now();
        weather.heal(now);
        if now >= next {
            let cycle = start.elapsed().as_nanos() % (MILD + WILD).as_nanos();
            // Only cuts and deaths disturb Redisson's members, so they need no mild phase.
            if cycle >= MILD.as_nanos() || weather.stage.is_beside_redisson() {
                weather.wild();
                next = now + weather.millis(100, 500);
            } else {
                weather.mild();
                next = now + weather.millis(300, 1500);
            }
        }
        if now >= forget {
            weather.stage.proxies.iter().for_each(|proxy| proxy.forget());
            forget = now + FORGET;
        }
        weather.stage.look_after_members()?;
        thread::sleep(Duration::from_millis(5));
    }
    while let Some(last) = weather.open.iter().map(|open| open.until).max() {
        weather.heal(last);
    }
    Ok(())
}

impl Weather<'_> {
    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.rng.u64(from..=to))
    }

    fn heal(&mut self, now: Instant) {
        while let Some(place) = self.open.iter().position(|open| open.until <= now) {
            let Open { kind, member, since, .. } = self.open.swap_remove(place);
            match (kind, member) {
                (FaultKind::Paused, Some(member)) => self.stage.members[member].resume(),
                (FaultKind::ServerPaused, _) => self.stage.server.server.resume(),
                (FaultKind::ServerKilled, _) => self.stage.server.server.restart(),
                (_, Some(member)) => self.stage.proxies[member].heal(),
                (_, None) => {}
            }
            self.stage.over(kind, member, since);
        }
    }

    fn is_server_up(&self) -> bool {
        self.open
            .iter()
            .all(|open| open.kind != FaultKind::ServerKilled && open.kind != FaultKind::ServerPaused)
    }

    /// A member without an open fault. Redisson's member with fair locks is spared: in Redisson's fair queue
    /// a dead thread delays its successors by five minutes, and a disconnected thread's call never returns.
    fn a_member(&mut self) -> Option<usize> {
        let member = self.rng.usize(..MEMBERS);
        let is_spared = self.stage.is_redisson(member) && member == 1;
        (!is_spared && self.open.iter().all(|open| open.member != Some(member))).then_some(member)
    }

    /// Injects a fault that is over at once; its effect lasts no longer than a reconnect.
    fn mild(&mut self) {
        if !self.is_server_up() {
            return;
        }
        // Beside Redisson, no fault that all members would feel.
        match self.rng.u8(..100) {
            _ if self.stage.is_beside_redisson() => self.cut_links(),
            0..45 => self.at_once(FaultKind::SubscriptionsKilled, &["CLIENT", "KILL", "TYPE", "pubsub"]),
            45..60 => self.at_once(FaultKind::CommandsKilled, &["CLIENT", "KILL", "TYPE", "normal"]),
            60..75 => self.cut_links(),
            75..90 => self.at_once(FaultKind::ScriptsFlushed, &["SCRIPT", "FLUSH"]),
            _ => self.stage.force(self.rng.u32(..NAMES)),
        }
    }

    fn at_once(&mut self, kind: FaultKind, command: &[&str]) {
        let since = now();
        let _ = self.stage.server.try_run::<redis::Value>(command);
        self.stage.over(kind, None, since);
    }

    fn cut_links(&mut self) {
        let Some(member) = self.a_member() else { return };
        let since = now();
        let how = if self.rng.bool() { Cut::Close } else { Cut::Reset };
        self.stage.proxies[member].cut(how);
        self.stage.over(FaultKind::LinksCut, Some(member), since);
    }

    fn wild(&mut self) {
        if !self.is_server_up() {
            return;
        }
        match self.rng.u8(..100) {
            0..25 => return self.mild(),
            _ if self.stage.is_beside_redisson() => {}
            25..28 => return self.last(FaultKind::ServerKilled, None, 20, 500),
            28..32 => return self.last(FaultKind::ServerPaused, None, 100, 1500),
            _ => {}
        }
        let Some(member) = self.a_member() else { return };
        match self.rng.u8(..100) {
            0..93 if self.stage.is_redisson(member) => self.cut_links(),
            0..22 => self.last(FaultKind::Silence, Some(member), 100, 3500),
            22..34 => self.last(FaultKind::DeadLinks, Some(member), 500, 3000),
            34..54 => self.last(FaultKind::RepliesLost, Some(member), 1500, 1500),
            54..68 => self.last(FaultKind::Delay, Some(member), 300, 2000),
            68..75 => self.last(FaultKind::Chopped, Some(member), 300, 2000),
            75..93 => {
                let (lease, long) = (LEASE.as_millis() as u64, self.rng.bool());
                let (from, to) = if long { (lease + 200, lease * 2) } else { (100, lease - 600) };
                self.last(FaultKind::Paused, Some(member), from, to);
            }
            _ => {
                let (since, seed) = (now(), self.rng.u64(..));
                self.stage.replace(member, seed);
                self.stage.over(FaultKind::Killed, Some(member), since);
            }
        }
    }

    /// Begins a fault with a random duration in milliseconds.
    fn last(&mut self, kind: FaultKind, member: Option<usize>, from: u64, to: u64) {
        let until = Instant::now() + self.millis(from, to);
        self.open.push(Open { kind, member, since: now(), until });
        let Some(member) = member else {
            match kind {
                FaultKind::ServerKilled => self.stage.server.server.kill_9(),
                _ => self.stage.server.server.pause(),
            }
            return;
        };
        let proxy = &self.stage.proxies[member];
        match kind {
            FaultKind::Paused => self.stage.members[member].pause(),
            FaultKind::Silence => match self.rng.u8(..3) {
                0 => proxy.silence(Way::ToServer),
                1 => proxy.silence(Way::ToClient),
                _ => [Way::ToServer, Way::ToClient].into_iter().for_each(|way| proxy.silence(way)),
            },
            FaultKind::DeadLinks => {
                for link in proxy.links().into_iter().rev().filter(|link| link.is_open()).take(2) {
                    if self.rng.bool() {
                        [Way::ToServer, Way::ToClient].into_iter().for_each(|way| link.silence(way));
                    }
                }
            }
            FaultKind::RepliesLost => {
                for _ in 0..self.rng.u8(1..=3) {
                    let silence = self.rng.bool();
                    let afterwards = if silence { Afterwards::Silence } else { Afterwards::Reset };
                    proxy.lose_reply("EVALSHA", afterwards);
                }
            }
            FaultKind::Delay => {
                for way in [Way::ToServer, Way::ToClient] {
                    proxy.delay(way, Duration::from_millis(self.rng.u64(1..=200)));
                }
            }
            _ => proxy.chop(),
        }
    }
}
