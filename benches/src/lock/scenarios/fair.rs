//! The fair lock beside the plain one, and beside BLPOP: what its order costs, and whether it is one.

use super::super::clients::{Blpop, Client, LatchworkFair};
use super::super::figure::{Goal, Measurement};
use super::super::server::Server;
use super::convoy::{self, Walk};
use super::crowd;
use super::hand_off::{self, handed_off};
use crate::each_client_beside_fair;

pub(super) const NAME: &str = "fair";

const FAIR: &str = LatchworkFair::NAME;

pub(super) fn measure(server: &mut Server, rounds: usize) -> Measurement {
    let of_blpop = |times| Some(Goal::OfRow { row: FAIR, peer: Blpop::NAME, times });
    let at_most = |most| Some(Goal::AtMostBy { row: FAIR, most });

    let rows = each_client_beside_fair!(two()).into();
    let mut two = handed_off(NAME, rows, server, rounds);
    two.push("2 processes: p50, us", 0, of_blpop(1.05), |row| row.micros(0.5));
    two.push("2 processes: p99, us", 0, None, |row| row.micros(0.99));
    two.push("2 processes: commands", 1, at_most(2.0), hand_off::Row::commands);

    let rows = each_client_beside_fair!(eight()).into();
    let mut eight = handed_off(NAME, rows, server, rounds);
    eight.push("8 processes: p50, us", 0, of_blpop(1.0), |row| row.micros(0.5));
    eight.push("8 processes: p99, us", 0, None, |row| row.micros(0.99));
    eight.push("8 processes: commands", 1, at_most(2.0), hand_off::Row::commands);

    // Those of `crowd`, which never think: the queues are never empty.
    let walk = Walk { name: NAME, ..crowd::WALK };
    let mut crowd = walk.walked(each_client_beside_fair!(walker()).into(), server, rounds);
    crowd.push("4 x 8 tasks: commands of a hold", 2, at_most(1.2), convoy::Row::commands);
    crowd.push("4 x 8 tasks: holds a second", 0, None, convoy::Row::rate);
    crowd.push("4 x 8 tasks: longest wait, ms", 0, None, |row| row.longest_wait.as_secs_f64() * 1e3);
    let at_least = Some(Goal::AtLeastBy { row: FAIR, least: 0.98 });
    crowd.push("4 x 8 tasks: Jain's index", 3, at_least, |row| row.jain);

    let mut all = Measurement::default();
    for part in [two.measurement, eight.measurement, crowd.measurement] {
        all.figures.extend(part.figures);
        all.notes.extend(part.notes);
    }
    all
}

fn two<C: Client>() -> hand_off::Row {
    hand_off::row::<C>(2)
}

fn eight<C: Client>() -> hand_off::Row {
    hand_off::row::<C>(8)
}

fn walker<C: Client>() -> convoy::Row {
    convoy::row::<C>()
}
