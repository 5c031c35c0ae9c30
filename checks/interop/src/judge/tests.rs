//! Made-up histories, sound and faulty ones: the stories of `tales.txt`, and the words of their language.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

use super::judge;
use crate::history::{By, Event, FaultKind, History, Life, Outcome, Record, Why, Wish, Without};

const MS: u64 = 1_000_000;
const LEASE: u64 = 2400;
const END: u64 = 20_000;

fn named<'a, T: Deserialize<'a>>(name: Option<&&'a str>) -> Option<T> {
    name.map(|name| T::deserialize(IntoDeserializer::<Error>::into_deserializer(*name)).unwrap())
}

/// The history of the steps, each `AT ACTOR WHAT …`. The default lock is number 0.
fn told(steps: &str) -> History {
    let life = |member| Life { member, ..Life::default() };
    let mut history = History { stage: Vec::new(), lives: vec![life(0), life(1)] };
    for step in steps.split(';').map(str::trim).filter(|step| !step.is_empty()) {
        let words: Vec<&str> = step.split(' ').collect();
        let [at, actor, verb, rest @ ..] = &words[..] else { panic!("{step}") };
        let member = ["A", "B"].iter().position(|member| member == actor);
        let at = at.parse::<u64>().unwrap();
        let id = rest.first().and_then(|id| id.parse::<u64>().ok()).unwrap_or(0);
        let option = |mark: char| rest.iter().skip(1).find_map(|word| word.strip_prefix(mark));
        let number = |mark| option(mark).map(|number| number.parse::<u64>().unwrap());
        let owner = format!("{actor}:{}", number('=').unwrap_or(id));
        let believes = Event::Believes { id, left: LEASE * MS };
        let fault = |kind| Event::Fault { kind, member, since: at * MS };
        let (of_stage, events) = match *verb {
            // `@LOCK`; `r`: to read; `#`: with a token; `*LEASES`.
            "wants" => {
                let wish = Wish {
                    lease: number('*').unwrap_or(1) * LEASE * MS,
                    watched: true,
                    fenced: option('#').is_some(),
                    reads: option('r').is_some(),
                    ..Wish::default()
                };
                (false, vec![(at, Event::Wants { id, name: number('@').unwrap_or(0) as u32, wish })])
            }
            // `=ID`: with the owner of acquisition ID; `#TOKEN`. The guard is asked at once.
            "has" => (false, vec![(at, Event::Acquired { id, owner, token: number('#') }), (at, believes)]),
            "holds" => (false, vec![(at, believes)]),
            "lost" => (false, vec![(at, Event::Lost { id, why: named::<Why>(rest.get(1)).unwrap() })]),
            "gives" => {
                let outcome = named(rest.get(1)).unwrap_or(Outcome::Free);
                let lets_go = Event::LetsGo { id, by: By::Unlock };
                (false, vec![(at, lets_go), (at + 1, Event::LetGo { id, outcome })])
            }
            "drops" => (false, vec![(at, Event::Without { id, why: Without::Dropped })]),
            "Stuck" => (false, vec![(at, Event::Stuck { what: rest.join(" ") })]),
            "Quiet" => {
                let [entries, interest, subscriptions] = [0, 1, 2].map(|at| rest[at].parse().unwrap());
                (false, vec![(at, Event::Quiet { entries, interest, subscriptions })])
            }
            "Remains" => (true, vec![(at, Event::Remains { what: vec![rest.join(" ")] })]),
            "forced" => (true, vec![(at + 1, Event::Forced { name: id as u32, since: at * MS })]),
            "dies" => {
                history.lives[member.unwrap()].killed = Some(at * MS);
                (true, vec![(at, fault(FaultKind::Killed))])
            }
            "Redisson" => {
                history.lives[member.unwrap()].is_redisson = true;
                continue;
            }
            kind => (true, vec![(id, fault(named(Some(&kind)).unwrap()))]),
        };
        let records = if of_stage { &mut history.stage } else { &mut history.lives[member.unwrap()].records };
        records.extend(events.into_iter().map(|(at, event)| Record { at: at * MS, event }));
    }
    history
}

/// The violations that the judge finds, if the run ends in good order.
fn found(steps: &str) -> Vec<String> {
    let mut history = told(steps);
    for life in history.lives.iter_mut().filter(|life| life.killed.is_none()) {
        let event = Event::Quiet { entries: 0, interest: 0, subscriptions: 0 };
        life.records.push(Record { at: END * MS, event });
    }
    history.stage.push(Record { at: END * MS, event: Event::Remains { what: Vec::new() } });
    judge(&history).1.iter().map(ToString::to_string).collect()
}

/// Asserts that the judge finds exactly this violation, or none.
fn assert_found(what: &str, expected: Option<&str>, steps: &str) {
    let found = found(steps);
    let is_right = match expected {
        None => found.is_empty(),
        Some(expected) => found.len() == 1 && found[0].contains(expected),
    };
    assert!(is_right, "{what}: {found:?}");
}

#[test]
fn each_tale_is_judged_as_it_says() {
    let mut tales: Vec<(&str, String)> = Vec::new();
    for line in include_str!("tales.txt").lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("  ") {
            Some(steps) => tales.last_mut().unwrap().1 += steps,
            None if line.is_empty() => {}
            None => tales.push((line, String::new())),
        }
    }
    for (title, steps) in tales {
        let (what, expected) = title.split_once(" => ").map_or((title, None), |(what, it)| (what, Some(it)));
        assert_found(what, expected, &steps);
    }
}

#[test]
fn end_that_was_not_seen_is_found() {
    let found = judge(&told("1 A Quiet 0 0 0")).1;
    let said = found.iter().map(ToString::to_string).collect::<String>();
    assert!(found.len() == 2 && said.contains("was not looked at"), "{said}");
    assert!(said.contains("process 1 did not become quiet"), "{said}");
}

/// A process takes turn after turn, another waits for three seconds; and again, with a stalled server.
#[test]
fn starved_process_is_found_unless_a_fault_explains_it() {
    let turn = |id: u64| {
        let [wants, has, gives] = [940, 945, 990].map(|at| at + id * 60);
        format!("{wants} A wants {id} @100; {has} A has {id}; {gives} A gives {id}; ")
    };
    let turns =
        (1..=50).map(turn).collect::<String>() + "1000 B wants 1 @100; 4000 B has 1; 4010 B gives 1; ";
    let expected = Some("was kept waiting for 3.000 s");
    assert_found("a crowd", expected, &(turns.clone() + "15000 S ServerPaused 15000"));
    assert_found("a fault in a crowd", None, &(turns + "2000 S ServerPaused 2000"));
}
