//! How fast both are, in one run and in turns: an empty turn, again and again; and how long a writer waits
//! while others never cease to read.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

use crate::checks::Checked;
use crate::player::{AT_ALL, Player, Side, Sides, Way};
use crate::stage::{Server, WATCHDOG};

const TIME: Duration = Duration::from_secs(2);
const BOTH: [Side; 2] = [Side::Ours, Side::Redisson];
/// Until the Java side is compiled.
const WARM_UP: Duration = Duration::from_secs(4);
/// Processes, and tasks of each.
const FLEETS: [(usize, usize); 4] = [(1, 1), (1, 8), (2, 1), (2, 8)];
/// How many threads read, each for how long at a time at most, and for how long in all.
const READERS: usize = 4;
const READ: Duration = Duration::from_millis(40);
const STREAM: Duration = Duration::from_secs(12);
/// For how long a writer waits behind them at most, and how often it is to have its turn.
const PATIENCE: Duration = Duration::from_secs(8);
const WRITES: usize = 5;

/// How many nanoseconds were waited how often.
#[derive(Debug, Default)]
struct Waits(BTreeMap<u64, u64>);

impl Waits {
    fn add(&mut self, answer: &str) -> Checked {
        let waits = answer.strip_prefix("waited").ok_or_else(|| answer.to_owned())?;
        for wait in waits.split_whitespace() {
            let (nanos, times) = wait.split_once('x').ok_or_else(|| wait.to_owned())?;
            let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{wait}: {error}"));
            *self.0.entry(number(nanos)?).or_default() += number(times)?;
        }
        Ok(())
    }

    fn turns(&self) -> u64 {
        self.0.values().sum()
    }

    /// The wait that so many of a thousand do not exceed, in milliseconds.
    fn millis(&self, of_thousand: u64) -> String {
        let mut rank = self.turns() * of_thousand / 1000;
        let wait = self.0.iter().find(|(_, times)| {
            let here = rank <= **times;
            rank = rank.saturating_sub(**times);
            here
        });
        format!("{:.3}", wait.map_or(0.0, |(nanos, _)| *nanos as f64 / 1e6))
    }
}

pub(crate) fn print(sides: &Sides) {
    let server = Server::start();
    let url = server.server.url();
    let way = Way { locks: url.clone(), data: url, watchdog: WATCHDOG };
    let players = BOTH.map(|side| [(); 2].map(|()| Player::start(side, sides, &way)));
    for table in [empty_turns(&players), writers_behind_readers(&server, &players)] {
        match table {
            Ok(table) => println!("\n{table}"),
            Err(why) => println!("\nno measurement: {why}"),
        }
    }
}

fn empty_turns(players: &[[Player; 2]; 2]) -> Checked<Table> {
    for players in players {
        turns(players, 2, WARM_UP)?;
    }
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header([
        "processes × tasks",
        "whose",
        "turns a second",
        "of Redisson's",
        "waited p50, ms",
        "p99",
        "longest",
    ]);
    for (processes, tasks) in FLEETS {
        let [ours, theirs] =
            [turns(&players[0][..processes], tasks, TIME)?, turns(&players[1][..processes], tasks, TIME)?];
        for (side, waits) in BOTH.iter().zip([&ours, &theirs]) {
            table.add_row([
                format!("{processes} × {tasks}"),
                side.to_string(),
                format!("{:.0}", waits.turns() as f64 / TIME.as_secs_f64()),
                format!("{:.1}", waits.turns() as f64 / theirs.turns().max(1) as f64),
                waits.millis(500),
                waits.millis(990),
                waits.millis(1000),
            ]);
        }
    }
    Ok(table)
}

fn turns(players: &[Player], tasks: usize, time: Duration) -> Checked<Waits> {
    let mut asked = Vec::new();
    for player in players {
        for task in 0..tasks {
            let said = format!("pace plain pace {} 0", time.as_millis());
            asked.push(player.begin(&format!("pace-{task}"), &said));
        }
    }
    let mut waits = Waits::default();
    for asked in asked {
        waits.add(&asked.answer(time + AT_ALL)?)?;
    }
    Ok(waits)
}

fn writers_behind_readers(server: &Server, players: &[[Player; 2]; 2]) -> Checked<Table> {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header(["reader", "writer", "waited, ms"]);
    for (reader, [readers, _]) in BOTH.iter().zip(players) {
        for (writer, [_, writes]) in BOTH.iter().zip(players) {
            let name = format!("stream-{}", table.row_count());
            let said = format!("pace read {name} {} {}", STREAM.as_millis(), READ.as_millis());
            let reads: Vec<_> =
                (0..READERS).map(|task| readers.begin(&format!("reads-{task}"), &said)).collect();
            let waited = behind(server, writes, &name)?;
            for asked in reads {
                asked.answer(STREAM + AT_ALL)?;
            }
            table.add_row([reader.to_string(), writer.to_string(), waited.join(", ")]);
        }
    }
    Ok(table)
}

/// How long a writer waited each time, until it did not get in, or others might cease to read.
fn behind(server: &Server, writes: &Player, name: &str) -> Checked<Vec<String>> {
    let (mut waited, began) = (Vec::new(), Instant::now());
    while waited.len() < WRITES && began.elapsed() + PATIENCE < STREAM {
        // The mode is a field, too.
        server.until("a reader", |server| server.run::<usize>(&["HLEN", name]) > 1)?;
        let begun = Instant::now();
        let asked = writes.begin("writes", &format!("try write {name} {} -1", PATIENCE.as_millis()));
        if asked.answer(AT_ALL)? != "got" {
            waited.push(format!("not within {}", PATIENCE.as_millis()));
            break;
        }
        waited.push(begun.elapsed().as_millis().to_string());
        writes.begin("writes", &format!("unlock write {name}")).is(AT_ALL, "done")?;
    }
    Ok(waited)
}
