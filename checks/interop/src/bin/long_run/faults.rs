//! What is done to the stage: at random, out of a seed, with many faults and with few by turns, so that what
//! the wild one may excuse has time to end.

use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use latchwork_testkit::{Afterwards, Cut, Way};

use crate::history::FaultKind;
use crate::names::{LEASE, NAMES};
use crate::stage::{Stage, WORKERS};

const WILD: Duration = Duration::from_secs(6);
const MILD: Duration = Duration::from_secs(8);
/// How often what came over the links is forgotten, which would fill the memory.
const FORGET: Duration = Duration::from_secs(1);

/// A fault that lasts.
struct Open {
    number: u64,
    kind: FaultKind,
    worker: Option<usize>,
    until: Instant,
}

/// Whose faults they are.
pub(crate) struct Weather<'a> {
    stage: &'a mut Stage,
    rng: Rng,
    open: Vec<Open>,
}

/// Faults until the time is over, and then none any more.
pub(crate) fn rage(stage: &mut Stage, rng: Rng, time: Duration) -> Result<(), String> {
    let mut weather = Weather { stage, rng, open: Vec::new() };
    let start = Instant::now();
    let mut forget = start;
    // The workers are to get going first.
    let mut next = start + Duration::from_secs(1);
    while start.elapsed() < time {
        let now = Instant::now();
        weather.heal(now);
        if now >= next {
            let cycle = start.elapsed().as_nanos() % (MILD + WILD).as_nanos();
            if cycle >= MILD.as_nanos() {
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
        weather.stage.look_after_workers()?;
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

    /// Ends what has lasted long enough.
    fn heal(&mut self, now: Instant) {
        while let Some(place) = self.open.iter().position(|open| open.until <= now) {
            let Open { number, kind, worker, .. } = self.open.swap_remove(place);
            match (kind, worker) {
                (FaultKind::Paused, Some(worker)) => self.stage.resume(worker),
                (FaultKind::ServerPaused, _) => self.stage.server.resume(),
                (FaultKind::ServerKilled, _) => self.stage.server.restart(),
                (_, Some(worker)) => self.stage.proxies[worker].heal(),
                (_, None) => {}
            }
            self.stage.over(number);
        }
    }

    fn is_server_up(&self) -> bool {
        self.open
            .iter()
            .all(|open| open.kind != FaultKind::ServerKilled && open.kind != FaultKind::ServerPaused)
    }

    /// One of those with which nothing is wrong.
    fn a_worker(&mut self) -> Option<usize> {
        let worker = self.rng.usize(..WORKERS);
        self.open.iter().all(|open| open.worker != Some(worker)).then_some(worker)
    }

    /// What is over at once, and is felt for no longer than a connection takes.
    fn mild(&mut self) {
        if !self.is_server_up() {
            return;
        }
        match self.rng.u8(..100) {
            0..45 => self.kill_connections(FaultKind::SubscriptionsKilled, "pubsub"),
            45..60 => self.kill_connections(FaultKind::CommandsKilled, "normal"),
            60..75 => self.cut_links(),
            75..90 => {
                let fault = self.stage.begin(FaultKind::ScriptsFlushed, None);
                let _ = self.stage.run::<()>(&["SCRIPT", "FLUSH"]);
                self.stage.over(fault);
            }
            _ => self.stage.force(self.rng.u32(..NAMES)),
        }
    }

    fn kill_connections(&mut self, kind: FaultKind, of_type: &str) {
        let fault = self.stage.begin(kind, None);
        let _ = self.stage.run::<usize>(&["CLIENT", "KILL", "TYPE", of_type]);
        self.stage.over(fault);
    }

    fn cut_links(&mut self) {
        let Some(worker) = self.a_worker() else { return };
        let fault = self.stage.begin(FaultKind::LinksCut, Some(worker));
        let how = if self.rng.bool() { Cut::Close } else { Cut::Reset };
        self.stage.proxies[worker].cut(how);
        self.stage.over(fault);
    }

    fn wild(&mut self) {
        if !self.is_server_up() {
            return;
        }
        match self.rng.u8(..100) {
            0..25 => return self.mild(),
            25..28 => return self.last(FaultKind::ServerKilled, None, 20, 500),
            28..32 => return self.last(FaultKind::ServerPaused, None, 100, 1500),
            _ => {}
        }
        let Some(worker) = self.a_worker() else { return };
        match self.rng.u8(..100) {
            0..22 => self.last(FaultKind::Silence, Some(worker), 100, 3500),
            22..34 => self.last(FaultKind::DeadLinks, Some(worker), 500, 3000),
            34..54 => self.last(FaultKind::RepliesLost, Some(worker), 1500, 1500),
            54..68 => self.last(FaultKind::Delay, Some(worker), 300, 2000),
            68..75 => self.last(FaultKind::Chopped, Some(worker), 300, 2000),
            75..93 => {
                let (lease, long) = (LEASE.as_millis() as u64, self.rng.bool());
                let (from, to) = if long { (lease + 200, lease * 2) } else { (100, lease - 600) };
                self.last(FaultKind::Paused, Some(worker), from, to);
            }
            _ => {
                let (fault, seed) = (self.stage.begin(FaultKind::Killed, Some(worker)), self.rng.u64(..));
                self.stage.replace(worker, seed);
                self.stage.over(fault);
            }
        }
    }

    /// Begins what lasts for so many milliseconds.
    fn last(&mut self, kind: FaultKind, worker: Option<usize>, from: u64, to: u64) {
        let number = self.stage.begin(kind, worker);
        let until = Instant::now() + self.millis(from, to);
        self.open.push(Open { number, kind, worker, until });
        let Some(worker) = worker else {
            match kind {
                FaultKind::ServerKilled => self.stage.server.kill_9(),
                _ => self.stage.server.pause(),
            }
            return;
        };
        if kind == FaultKind::Paused {
            return self.stage.pause(worker);
        }
        let proxy = &self.stage.proxies[worker];
        match kind {
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
