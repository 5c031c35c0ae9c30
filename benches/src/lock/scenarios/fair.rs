//! The fair lock beside the plain one, and beside BLPOP: the cost of its order, and a check of the order.

use super::super::clients::{Client, LatchworkFair};
use super::super::figure::{Goal, Measurement};
use super::super::server::Server;
use super::convoy::{self, Walk};
use super::crowd;
use super::hand_off::{eight, granted, two};
use crate::each_client_beside;

pub(super) const NAME: &str = "fair";

const FAIR: &str = LatchworkFair::NAME;

pub(super) fn measure(server: &mut Server, rounds: usize) -> Measurement {
    let rows = [each_client_beside!(LatchworkFair, two()), each_client_beside!(LatchworkFair, eight())];
    let handed_off = granted(NAME, FAIR, rows.map(Vec::from), server, rounds);

    // The tasks of `crowd`, which never pause: the queues are never empty.
    let walk = Walk { name: NAME, ..crowd::WALK };
    let mut crowd = walk.walked(each_client_beside!(LatchworkFair, walker()).into(), server, rounds);
    let at_most = Some(Goal::AtMostBy { row: FAIR, most: 1.2 });
    crowd.push("4 x 8 tasks: commands of a hold", 2, at_most, convoy::Row::commands);
    crowd.push("4 x 8 tasks: holds a second", 0, None, convoy::Row::rate);
    crowd.push("4 x 8 tasks: longest wait, ms", 0, None, |row| row.longest_wait.as_secs_f64() * 1e3);
    let at_least = Some(Goal::AtLeastBy { row: FAIR, least: 0.98 });
    crowd.push("4 x 8 tasks: Jain's index", 3, at_least, |row| row.jain);
    handed_off.and(crowd.measurement)
}

fn walker<C: Client>() -> convoy::Row {
    convoy::row::<C>()
}
