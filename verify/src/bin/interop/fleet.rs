//! The fleet: processes of both sides count together, by GET and SET under one lock, while their links are cut and they are killed.
//!
//! A turn writes the number and the counter of its own thread by one command. If the lock keeps all others out, the number is the sum of
//! those, however many turns were cut off in the middle.

use std::time::{Duration, Instant};

use fastrand::Rng;
use latchwork_testkit::{ChaosProxy, Cut};

use crate::checks::{Checked, Checks, guarded};
use crate::player::{AT_ALL, Player, Side, Sides, Way};
use crate::stage::Server;

const SIDES: [Side; 4] = [Side::Ours, Side::Redisson, Side::Ours, Side::Redisson];
const THREADS: usize = 2;
/// A third of the default, as it is what each death of a holder costs; far longer than any process stands still.
const WATCHDOG: Duration = Duration::from_secs(10);
const NUMBER: &str = "number";
/// So many faults are cuts before one is a death.
const CUTS: usize = 10;

/// A fleet.
#[derive(Clone, Copy)]
struct Fleet {
    /// Ours, and theirs.
    kinds: (&'static str, &'static str),
    /// For how many ms a thread does without the lock between two turns.
    think: u64,
    /// Whose links are cut, and who dies.
    struck: &'static [Side],
}

const FLEETS: [(&str, Fleet); 2] = [
    (
        "a fleet of both counts right, whoever dies",
        Fleet { kinds: ("plain", "plain"), think: 0, struck: &[Side::Ours, Side::Redisson] },
    ),
    // The queues of both know nothing of each other, and the one that never empties keeps the other out: so this one does not crowd. And in
    // Redisson's queue a dead thread holds up those behind it for five minutes, and one that was cut off swallows its call.
    (
        "a fleet of both, and fair, counts right, whoever of ours dies",
        Fleet { kinds: ("fair", "fair"), think: 40, struck: &[Side::Ours] },
    ),
];

struct Ship {
    side: Side,
    number: usize,
    proxy: ChaosProxy,
    player: Player,
}

impl Ship {
    fn launch(fleet: Fleet, side: Side, number: usize, sides: &Sides, server: &Server) -> Self {
        let proxy = ChaosProxy::start(server.server.port());
        let way = Way { locks: proxy.url(), data: server.server.url(), watchdog: WATCHDOG };
        let player = Player::start(side, sides, &way);
        let ship = Self { side, number, proxy, player };
        let kind = if side == Side::Ours { fleet.kinds.0 } else { fleet.kinds.1 };
        for thread in 0..THREADS {
            let line = format!("count {kind} fleet {NUMBER} {} {}", ship.own(thread), fleet.think);
            let _ = ship.player.begin(&format!("counts-{thread}"), &line);
        }
        ship
    }

    /// The key that counts the turns of one thread, and of those that came before it in the same place.
    fn own(&self, thread: usize) -> String {
        format!("own:{}:{thread}", self.number)
    }
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
    let turns = |server: &Server, own: &str| server.run::<Option<u64>>(&["GET", own]).unwrap_or(0);
    let all: Vec<String> = ships.iter().flat_map(|ship| (0..THREADS).map(|it| ship.own(it))).collect();
    server.until("a turn of each", |server| all.iter().all(|own| turns(server, own) > 0))?;

    let (begun, before) = (Instant::now(), turns(&server, NUMBER));
    let (mut cuts, mut deaths) = (0, 0);
    while begun.elapsed() < time {
        // When a fault comes, and not something to wait for.
        std::thread::sleep(Duration::from_millis(rng.u64(100..500)));
        if (cuts + deaths) % (CUTS + 1) == CUTS {
            let mut struck: Vec<_> =
                ships.iter_mut().filter(|ship| fleet.struck.contains(&ship.side)).collect();
            let turn = deaths % struck.len();
            let ship = &mut *struck[turn];
            ship.player.kill_9();
            *ship = Ship::launch(fleet, ship.side, ship.number, sides, &server);
            deaths += 1;
        } else {
            let how = if rng.bool() { Cut::Close } else { Cut::Reset };
            let struck: Vec<_> = ships.iter().filter(|ship| fleet.struck.contains(&ship.side)).collect();
            rng.choice(struck).expect("there are some").proxy.cut(how);
            cuts += 1;
        }
        ships.iter().for_each(|ship| ship.proxy.forget());
    }
    let counted = turns(&server, NUMBER) - before;
    println!("      {counted} turns in {:.0?}, {cuts} cuts, {deaths} deaths", begun.elapsed());

    // Nobody is left waiting, and then the sum is right.
    for ship in &ships {
        ship.player.begin("all", "stop").is(AT_ALL, "stopping")?;
    }
    for ship in &ships {
        for thread in 0..THREADS {
            // It was told when the ship was launched.
            ship.player.awaits(&format!("counts-{thread}"), "count").is(AT_ALL, "counted")?;
        }
    }
    let (number, sum) = (turns(&server, NUMBER), all.iter().map(|own| turns(&server, own)).sum::<u64>());
    if number != sum {
        return Err(format!("they counted to {number} in {sum} turns: two were in at once"));
    }
    let () = server.run(&["DEL", NUMBER]);
    all.iter().for_each(|own| server.run(&["DEL", own]));
    server.is_clean()
}
