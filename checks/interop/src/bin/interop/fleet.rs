//! The fleet: processes of both sides count together, by GET and SET under one lock, while their links are
//! cut and they are killed.
//!
//! A turn writes the number and the counter of its own thread by one command. If the lock keeps all others
//! out, the number is the sum of those, however many turns were cut off in the middle. A reader looks at the
//! number twice, and must not see it change.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;
use latchwork_testkit::{ChaosProxy, Cut};

use crate::checks::{Checked, Checks, guarded};
use crate::player::{AT_ALL, Player, Side, Sides, Way};
use crate::stage::Server;

const SIDES: [Side; 4] = [Side::Ours, Side::Redisson, Side::Ours, Side::Redisson];
/// A third of the default, as it is what each death of a holder costs; far longer than any process stands
/// still.
const WATCHDOG: Duration = Duration::from_secs(10);
const NUMBER: &str = "number";
/// What a thread does in its turns.
const COUNTS: &str = "counts";
const READS: &str = "reads";

/// A fleet.
#[derive(Clone, Copy)]
struct Fleet {
    /// Of the lock, for each thread of a process.
    kinds: &'static [&'static str],
    /// For how many ms a thread does without the lock between two turns.
    think: u64,
    /// The processes whose links are cut, and that die.
    struck: &'static [Side],
    /// So many faults are cuts before one is a death.
    cuts: usize,
}

const FLEETS: [(&str, Fleet); 3] = [
    (
        "a fleet of both counts right, whichever process dies",
        Fleet { kinds: &["plain", "plain"], think: 0, struck: &[Side::Ours, Side::Redisson], cuts: 10 },
    ),
    // The queues of both know nothing of each other, and the one that never empties keeps the other out: so
    // this one does not crowd. And in Redisson's queue a dead thread holds up those behind it for five
    // minutes, and one that was cut off swallows its call.
    (
        "a fleet of both, and fair, counts right, whichever of ours dies",
        Fleet { kinds: &["fair", "fair"], think: 40, struck: &[Side::Ours], cuts: 10 },
    ),
    // Redisson's readers do not wait for waiting writers: they must not crowd, either. And each death
    // leaves a reader until its lease is over: were there more of them, no writer would ever have a turn.
    (
        "a fleet of both that reads and writes counts right, whichever process dies",
        Fleet {
            kinds: &["write", "read", "read"],
            think: 40,
            struck: &[Side::Ours, Side::Redisson],
            cuts: 40,
        },
    ),
];

struct Ship {
    side: Side,
    kinds: &'static [&'static str],
    number: usize,
    proxy: ChaosProxy,
    player: Player,
}

impl Ship {
    fn launch(fleet: Fleet, side: Side, number: usize, sides: &Sides, server: &Server) -> Self {
        let proxy = ChaosProxy::start(server.server.port());
        let way = Way { locks: proxy.url(), data: server.server.url(), watchdog: WATCHDOG };
        let player = Player::start(side, sides, &way);
        let ship = Self { side, kinds: fleet.kinds, number, proxy, player };
        for ((thread, own), kind) in ship.threads().zip(fleet.kinds) {
            let line = format!("count {kind} fleet {NUMBER} {own} {}", fleet.think);
            let _ = ship.player.begin(&thread, &line);
        }
        ship
    }

    /// Each with the key that counts its turns, and those of the ones that came before it in the same place.
    fn threads(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let Self { side, number, .. } = self;
        self.kinds.iter().zip(0..).map(move |(kind, at)| {
            let does = if *kind == "read" { READS } else { COUNTS };
            (format!("counts-{at}"), format!("{side}-{does}:{number}:{at}"))
        })
    }

    /// What its threads have to say at the end.
    fn ends(&self) -> Checked {
        for (thread, _) in self.threads() {
            // It was told when the ship was launched.
            let answer = self.player.awaits(&thread, "count").answer(AT_ALL)?;
            let side = self.side;
            let said: Option<(&str, &str)> =
                answer.strip_prefix("counted ").and_then(|said| said.split_once(' '));
            match said {
                Some(("0", "0")) => {}
                Some((torn, "0")) => return Err(format!("{torn} turns of {side} saw a writer")),
                Some((_, lost)) => return Err(format!("{lost} turns of {side} lost the lock")),
                None => return Err(answer),
            }
        }
        Ok(())
    }
}

/// How many turns there were, by whose they were and what was done.
fn turns(server: &Server, keys: &[String]) -> BTreeMap<String, u64> {
    let mut turns = BTreeMap::new();
    for key in keys {
        let what = key.split(':').next().unwrap_or_default();
        *turns.entry(what.to_owned()).or_default() += server.run::<Option<u64>>(&["GET", key]).unwrap_or(0);
    }
    turns
}

pub(crate) fn sail(sides: &Sides, checks: &mut Checks, time: Duration, seed: u64) {
    for (what, fleet) in FLEETS {
        if checks.wants(what) {
            checks.note(what, guarded(|| count(fleet, sides, time, Rng::with_seed(seed))));
        }
    }
}

fn count(fleet: Fleet, sides: &Sides, time: Duration, mut rng: Rng) -> Checked {
    let server = Server::start();
    let mut ships: Vec<Ship> =
        (0..).zip(SIDES).map(|(number, side)| Ship::launch(fleet, side, number, sides, &server)).collect();
    let all: Vec<String> = ships.iter().flat_map(Ship::threads).map(|(_, own)| own).collect();
    server.until("a turn of each", |server| all.iter().all(|own| server.left(own) > -2))?;

    let (begun, before) = (Instant::now(), turns(&server, &all));
    let faults = strike(&mut ships, fleet, sides, &server, time, &mut rng);
    let after = turns(&server, &all);
    let turned: Vec<_> =
        after.iter().map(|(what, turns)| format!("{what} {}", turns - before[what])).collect();
    println!("      in {:.0?} {}, {faults}", begun.elapsed(), turned.join(", "));

    // No task is left waiting, and then the sum is right.
    for ship in &ships {
        ship.player.begin("all", "stop").is(AT_ALL, "stopping")?;
    }
    ships.iter().try_for_each(Ship::ends)?;
    let number: u64 = server.run(&["GET", NUMBER]);
    let sum: u64 =
        turns(&server, &all).iter().filter(|(what, _)| what.ends_with(COUNTS)).map(|(_, it)| it).sum();
    if number != sum {
        return Err(format!("they counted to {number} in {sum} turns: two were in at once"));
    }
    let () = server.run(&["DEL", NUMBER]);
    all.iter().for_each(|own| server.run(&["DEL", own]));
    server.is_clean()
}

/// Cuts links and kills processes for some time. Says how many.
fn strike(
    ships: &mut [Ship],
    fleet: Fleet,
    sides: &Sides,
    server: &Server,
    time: Duration,
    rng: &mut Rng,
) -> String {
    let (begun, mut cuts, mut deaths) = (Instant::now(), 0, 0);
    while begun.elapsed() < time {
        // When a fault comes, and not something to wait for.
        std::thread::sleep(Duration::from_millis(rng.u64(100..500)));
        let mut struck: Vec<_> = ships.iter_mut().filter(|ship| fleet.struck.contains(&ship.side)).collect();
        if (cuts + deaths) % (fleet.cuts + 1) == fleet.cuts {
            let turn = deaths % struck.len();
            let ship = &mut *struck[turn];
            ship.player.kill_9();
            *ship = Ship::launch(fleet, ship.side, ship.number, sides, server);
            deaths += 1;
        } else {
            let how = if rng.bool() { Cut::Close } else { Cut::Reset };
            rng.choice(struck).expect("there are some").proxy.cut(how);
            cuts += 1;
        }
        ships.iter().for_each(|ship| ship.proxy.forget());
    }
    format!("{cuts} cuts, {deaths} deaths")
}
