//! [`Lines`]: room on a connection for [`ROOM`] commands of a kind at a time. Further commands wait before
//! the connection, first come, first served: a crowd of commands on the wire would fill the memory, and
//! replies would come after the limits of their commands.
//!
//! A permit invites one command: the command uses the permit up, and counts as under way until it leaves its
//! room. A caller that was invited and is not polled keeps nobody waiting for long: [`Lines::invite`] makes
//! up for unused invitations every [`INVITED`](super::budget::INVITED). Such a caller begins late, beside the
//! others, and rooms that are left are not given again until there are fewer commands than [`ROOM`].

use std::sync::Arc;

use crate::AsyncSemaphore;
use crate::sync::atomic::{AtomicUsize, Ordering};

use super::budget::ROOM;

/// The line in which a command waits until there is room for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Line {
    /// Of acquisitions and questions.
    Ask,
    /// Of releases: waiters of a name do not wait for its release behind acquisitions of other names.
    GiveBack,
    /// No line: renewals, whose leases would end there, and the few commands that concern no lock.
    Pass,
}

/// The lines before one connection.
#[derive(Default)]
pub(super) struct Lines([Room; 2]);

struct Room {
    invitations: AsyncSemaphore,
    under_way: AtomicUsize,
}

impl Default for Room {
    fn default() -> Self {
        Self { invitations: AsyncSemaphore::new(ROOM), under_way: AtomicUsize::new(0) }
    }
}

/// A command's place among the commands under way. A command that passes has none.
pub(super) struct Place(Option<(Arc<Lines>, Line)>);

impl Place {
    pub(super) const PASSES: Self = Self(None);
}

impl Lines {
    /// A place without waiting. `None` if there is no room, or the connection is not used any more.
    pub(super) fn try_enter(self: &Arc<Self>, line: Line) -> Option<Place> {
        if let Some(room) = self.0.get(line as usize) {
            room.invitations.try_acquire().ok()?.forget();
        }
        Some(self.place(line))
    }

    /// A place when the command's turn has come. `None` if the connection is not used any more.
    pub(super) async fn enter(self: &Arc<Self>, line: Line) -> Option<Place> {
        if let Some(room) = self.0.get(line as usize) {
            room.invitations.acquire().await.ok()?.forget();
        }
        Some(self.place(line))
    }

    fn place(self: &Arc<Self>, line: Line) -> Place {
        let room = self.0.get(line as usize);
        Place(room.map(|room| {
            // Ordering: Relaxed, a count; nothing is read through it.
            room.under_way.fetch_add(1, Ordering::Relaxed);
            (Arc::clone(self), line)
        }))
    }

    #[cfg(test)]
    pub(super) fn invitations(&self, line: Line) -> usize {
        self.0[line as usize].invitations.available_permits()
    }

    /// Whether commands wait.
    pub(super) fn have_waiters(&self) -> bool {
        self.0.iter().any(|room| room.invitations.waiters() > 0)
    }

    /// Invites waiters in the place of callers that have not begun.
    pub(super) fn invite(&self) {
        for room in self.0.iter().filter(|room| room.invitations.waiters() > 0) {
            // Ordering: Relaxed, as above.
            let under_way = room.under_way.load(Ordering::Relaxed);
            let unused = ROOM.saturating_sub(under_way + room.invitations.available_permits());
            room.invitations.add_permits(unused);
        }
    }

    /// The connection is not used any more: its waiters leave.
    pub(super) fn close(&self) {
        self.0.iter().for_each(|room| room.invitations.close());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((lines, line)) = &self.0 else { return };
        let room = &lines.0[*line as usize];
        // Ordering: Relaxed, as above.
        let others = room.under_way.fetch_sub(1, Ordering::Relaxed) - 1;
        if others + room.invitations.available_permits() < ROOM {
            room.invitations.add_permits(1);
        }
    }
}
