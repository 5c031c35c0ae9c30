//! The scenes of the read-write lock: which sides play those of every lock, and those that have readers
//! beside each other, or an owner of both sides.

use std::time::{Duration, Instant};

use crate::checks::Checked;
use crate::player::{AT_ALL, SOON, Side};
use crate::stage::WATCHDOG;

use super::{
    A_WHILE, AT_ONCE, Act, Cast, FAIR, PLAIN, Role, both, expect, number, quickest, theirs, to_them,
};
use super::{dies, hands_over, is_entered_again, is_forced_free, is_other_kind, is_renewed, keeps_out};
use super::{lease_ends, leaves_nothing, outlasts_wait, shows_its_lease};

const READ: Role = Role { side: Side::Ours, kind: "read" };
const WRITE: Role = Role { side: Side::Ours, kind: "write" };

/// What a waiter asks that looks each second, as it is not told.
const A_LOOK: Duration = Duration::from_millis(1500);

/// Those that keep each other out.
fn exclusive() -> Vec<(Role, Role)> {
    [both(READ, &["write"]), both(WRITE, &["read", "write"])].concat()
}

/// The writer, before the waiting reader.
fn before_readers() -> Vec<(Role, Role)> {
    [to_them(WRITE, &["read"]), theirs(READ, &["write"])].concat()
}

fn kinds_of_ours() -> Vec<(Role, Role)> {
    let sides = [READ, WRITE].into_iter();
    sides
        .flat_map(|side| [PLAIN, FAIR].into_iter().flat_map(move |kind| [(side, kind), (kind, side)]))
        .collect()
}

pub(super) fn scenes() -> Vec<Cast> {
    let (others, sides) = (["plain", "fenced", "fair", "spin"], ["read", "write"]);
    let of_two =
        |cast: super::Casting, kinds: &[&'static str]| [cast(READ, kinds), cast(WRITE, kinds)].concat();
    let alike = || [both(READ, &["read"]), both(WRITE, &["write"])].concat();
    vec![
        ("keeps out", keeps_out, [exclusive(), of_two(to_them, &others)].concat()),
        ("is another kind for", is_other_kind, [of_two(theirs, &others), kinds_of_ours()].concat()),
        ("leaves nothing that counts for", leaves_nothing, of_two(both, &sides)),
        ("hands over to", hands_over, exclusive()),
        ("shows its lease to", shows_its_lease, alike()),
        ("ends with its lease for", lease_ends, exclusive()),
        ("outlasts the wait of", outlasts_wait, exclusive()),
        ("is entered again before", is_entered_again, exclusive()),
        ("is forced free by", is_forced_free, exclusive()),
        ("forces itself free before", forces_itself_free, exclusive()),
        // Redisson's plain lock frees whatever there is. Ours learns of it.
        ("is forced free by", is_forced_free, of_two(to_them, &["plain"])),
        ("is shared with", is_shared, both(READ, &["read"])),
        ("leaves, and cuts nothing short of", cuts_nothing_short, both(READ, &["read"])),
        ("outlives the lease of", outlives_lease, both(READ, &["read"])),
        ("lets in at once all of", lets_all_in, before_readers()),
        ("goes on reading beside", goes_on_reading, before_readers()),
        ("reads what it writes, and keeps out", reads_as_well, both(WRITE, &["write"])),
    ]
}

pub(super) fn slow_scenes() -> Vec<Cast> {
    vec![
        ("is renewed before", is_renewed, exclusive()),
        ("is renewed beside", is_renewed_beside, both(READ, &["read"])),
        ("keeps its lease beside the watchdog of", keeps_its_lease, both(READ, &["read"])),
        ("dies, and in time leaves its lock to", dies, exclusive()),
    ]
}

impl Act<'_> {
    /// The keys that are readers' leases.
    fn leases(&self) -> Vec<String> {
        self.stage.server.keys(&format!("{{{}}}:*:rwlock_timeout:*", self.name))
    }

    /// That the lock lasts at least as long as each of its readers' leases.
    fn covers_its_readers(&self) -> Checked {
        let longest = self.leases().iter().map(|key| self.stage.server.left(key)).max();
        // The lock is asked last, and has no more time left than it had.
        let left = self.left();
        let is_so = longest.is_some_and(|longest| left + 1000 >= longest);
        expect(is_so, || format!("{left} ms are left of the lock, and {longest:?} of its longest reader"))
    }

    /// That a writer of either side finds a holder there.
    fn keeps_writers_out(&self) -> Checked {
        let writes = self.of_kinds("write", "write");
        writes.second("try 0 -1").is(AT_ALL, "held")?;
        writes.third("try 0 -1").is(AT_ALL, "held")
    }

    /// That neither side finds a holder.
    fn lets_writers_in(&self) -> Checked {
        let writes = self.of_kinds("write", "write");
        for ask in [Act::second, Act::third] {
            ask(&writes, "try 0 -1").is(AT_ALL, "got")?;
            ask(&writes, "unlock").is(AT_ALL, "done")?;
        }
        Ok(())
    }
}

fn is_shared(act: &Act<'_>) -> Checked {
    act.holder("lock -1").is(AT_ALL, "got")?;
    act.other("try 0 -1").is(AT_ALL, "got")?;
    act.third("lock -1").is(SOON, "got")?;
    for ask in [Act::holder, Act::other, Act::third] {
        ask(act, "holds").is(AT_ALL, "1")?;
        ask(act, "locked").is(AT_ALL, "true")?;
    }
    act.covers_its_readers()?;
    // A reader would wait for itself. Redisson's does.
    let upgrade = |role: Role| if role.side == Side::Ours { "upgrade" } else { "held" };
    let writes = act.of_kinds("write", "write");
    writes.holder("try 300 -1").is(AT_ALL, upgrade(act.holder))?;
    writes.other("try 300 -1").is(AT_ALL, upgrade(act.other))?;
    act.third("unlock").is(AT_ALL, "done")?;
    act.keeps_writers_out()?;
    act.holder("unlock").is(AT_ALL, "done")?;
    act.holder("holds").is(AT_ALL, "0")?;
    act.keeps_writers_out()?;
    act.other("holds").is(AT_ALL, "1")?;
    act.other("unlock").is(AT_ALL, "done")?;
    act.other("locked").is(AT_ALL, "false")?;
    act.lets_writers_in()
}

/// Whichever lease is the longer one.
fn cuts_nothing_short(act: &Act<'_>) -> Checked {
    for (leaves, stays, least) in [(3000, 20_000, 10_000), (20_000, 8000, 3000), (20_000, -1, 20_000)] {
        act.holder(&format!("lock {leaves}")).is(AT_ALL, "got")?;
        act.other(&format!("lock {stays}")).is(AT_ALL, "got")?;
        act.covers_its_readers()?;
        act.holder("unlock").is(AT_ALL, "done")?;
        act.covers_its_readers()?;
        let left = number(&act.other("left"))?;
        expect(left >= least, || format!("{left} ms are left of {stays} when one of {leaves} has left"))?;
        act.keeps_writers_out()?;
        act.other("holds").is(AT_ALL, "1")?;
        act.other("unlock").is(AT_ALL, "done")?;
        act.lets_writers_in()?;
    }
    Ok(())
}

/// The other's lease ends beside the holder's: it keeps no waiter out when the holder leaves.
fn outlives_lease(act: &Act<'_>) -> Checked {
    // Not watched: the watchdog of 3.x renews all readers.
    act.holder("lock 20000").is(AT_ALL, "got")?;
    act.other("lock 1500").is(AT_ALL, "got")?;
    act.stage.server.until("the end of a lease", |_| act.leases().len() == 1)?;
    act.keeps_writers_out()?;
    act.holder("holds").is(AT_ALL, "1")?;
    act.holder("unlock").is(AT_ALL, "done")?;
    act.lets_writers_in()?;
    act.other("unlock").is(AT_ALL, "not-held")
}

fn lets_all_in(act: &Act<'_>) -> Checked {
    quickest(AT_ONCE, || {
        act.holder("lock -1").is(AT_ALL, "got")?;
        let waiting = [act.other("lock -1"), act.third("lock -1")];
        waiting.iter().try_for_each(|waits| act.until_waiting(waits))?;
        let before = Instant::now();
        act.holder("unlock").is(AT_ALL, "done")?;
        waiting.iter().try_for_each(|waits| waits.is(SOON, "got"))?;
        let waited = before.elapsed();
        act.third("unlock").is(AT_ALL, "done")?;
        act.other("unlock").is(AT_ALL, "done")?;
        Ok(waited)
    })
}

/// A writer that takes the read lock as well, before the other waits or after, and lets go of the write lock
/// first.
fn goes_on_reading(act: &Act<'_>) -> Checked {
    let (reads, writes) = (act.of_kinds("read", "read"), act);
    for before in [true, false] {
        let limit = match act.holder.side {
            Side::Ours => AT_ONCE,
            // It does not say so. A waiter that sees that it reads asks each second, one that does not at a
            // third of what its position lasts.
            Side::Redisson if before => A_LOOK,
            Side::Redisson => SOON,
        };
        quickest(limit, || {
            writes.holder("lock -1").is(AT_ALL, "got")?;
            writes.holder("lock -1").is(AT_ALL, "got")?;
            if before {
                reads.holder("lock -1").is(AT_ALL, "got")?;
            }
            let waits = reads.other("lock -1");
            act.until_waiting(&waits)?;
            if !before {
                reads.holder("lock -1").is(AT_ALL, "got")?;
            }
            act.keeps_writers_out()?;
            writes.holder("unlock").is(AT_ALL, "done")?;
            expect(waits.within(A_WHILE)?.is_none(), || "it got in beside a writer".to_owned())?;
            let begun = Instant::now();
            writes.holder("unlock").is(AT_ALL, "done")?;
            waits.is(AT_ALL, "got")?;
            let waited = begun.elapsed();
            reads.holder("holds").is(AT_ALL, "1")?;
            writes.holder("holds").is(AT_ALL, "0")?;
            act.covers_its_readers()?;
            act.keeps_writers_out()?;
            reads.holder("unlock").is(AT_ALL, "done")?;
            act.keeps_writers_out()?;
            reads.other("unlock").is(AT_ALL, "done")?;
            act.lets_writers_in()?;
            Ok(waited)
        })?;
    }
    Ok(())
}

/// In either order.
fn reads_as_well(act: &Act<'_>) -> Checked {
    let (reads, writes) = (act.of_kinds("read", "read"), act);
    for [first, last] in [[&reads, writes], [writes, &reads]] {
        quickest(AT_ONCE, || {
            writes.holder("lock -1").is(AT_ALL, "got")?;
            let waits = writes.other("lock -1");
            act.until_waiting(&waits)?;
            reads.holder("lock -1").is(SOON, "got")?;
            reads.third("try 0 -1").is(AT_ALL, "held")?;
            first.holder("unlock").is(AT_ALL, "done")?;
            expect(waits.within(A_WHILE)?.is_none(), || "it wrote beside another".to_owned())?;
            last.holder("holds").is(AT_ALL, "1")?;
            let before = Instant::now();
            last.holder("unlock").is(AT_ALL, "done")?;
            waits.is(SOON, "got")?;
            let waited = before.elapsed();
            writes.other("unlock").is(AT_ALL, "done")?;
            Ok(waited)
        })?;
    }
    Ok(())
}

fn is_renewed_beside(act: &Act<'_>) -> Checked {
    act.other("lock -1").is(AT_ALL, "got")?;
    act.holder("lock -1").is(AT_ALL, "got")?;
    act.until_renewed(&act.name)?;
    // Each one that leaves puts the lock to what the others' leases have left.
    act.other("unlock").is(AT_ALL, "done")?;
    let left = act.left();
    expect(left > 10_000, || format!("{left} ms are left when the other has left"))?;
    act.keeps_writers_out()?;
    act.holder("unlock").is(AT_ALL, "done")?;
    act.lets_writers_in()
}

/// A lease that is longer than the watchdog's, beside one that is renewed.
fn keeps_its_lease(act: &Act<'_>) -> Checked {
    let long = WATCHDOG * 2;
    let begun = Instant::now();
    act.holder(&format!("lock {}", long.as_millis())).is(AT_ALL, "got")?;
    act.other("lock -1").is(AT_ALL, "got")?;
    let watched = act.leases().into_iter().min_by_key(|key| act.stage.server.left(key));
    act.until_renewed(&watched.ok_or("no reader is there")?)?;
    act.other("unlock").is(AT_ALL, "done")?;
    // The watchdog of 3.x sets the leases of all readers to its own timeout. Ours is whole again with the
    // next renewal.
    act.stage.server.until("the whole lease", |server| {
        let left = Duration::from_millis(server.left(&act.name).unsigned_abs());
        left + SOON >= long.saturating_sub(begun.elapsed())
    })?;
    let after = begun.elapsed();
    expect(after < WATCHDOG, || format!("it was whole again only after {after:?}"))?;
    act.keeps_writers_out()?;
    act.holder("unlock").is(AT_ALL, "done")?;
    act.lets_writers_in()
}

fn forces_itself_free(act: &Act<'_>) -> Checked {
    act.holder("lock -1").is(AT_ALL, "got")?;
    let waits = act.other("lock -1");
    act.until_waiting(&waits)?;
    act.holder("force").is(AT_ALL, "freed")?;
    waits.is(SOON, "got")?;
    act.holder("unlock").is(AT_ALL, "not-held")?;
    act.other("unlock").is(AT_ALL, "done")
}
