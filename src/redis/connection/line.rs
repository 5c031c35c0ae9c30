//! [`Lines`]: room on a connection for [`ROOM`] commands of a kind at a time. Further commands wait before
//! the connection, first come, first served: a crowd of commands on the wire would fill the memory, and
//! replies would come after the limits of their commands.

use std::sync::Arc;

use crate::sync::Mutex;
use crate::{AsyncSemaphore, OwnedSemaphorePermit};

use super::budget::ROOM;

/// The line in which a command waits until there is room for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Line {
    #[default]
    /// Of acquisitions and questions.
    Ask,
    /// Of releases: waiters of a name do not wait for its release behind acquisitions of other names.
    GiveBack,
    /// No line: renewals, whose leases would end there, and the few commands that concern no lock.
    Pass,
}

/// The place of a command among the commands under way; `None` for a command that passes.
pub(super) type Room = Option<OwnedSemaphorePermit>;

/// The lines before one connection, each with its room; `None` once the connection is not used any more.
pub(super) struct Lines([Mutex<Option<Arc<AsyncSemaphore>>>; 2]);

impl Default for Lines {
    fn default() -> Self {
        Self([(); 2].map(|()| Mutex::new(Some(Arc::new(AsyncSemaphore::new(ROOM))))))
    }
}

impl Lines {
    /// Room without waiting. `None` if there is none, or the connection is not used any more.
    pub(super) fn try_enter(&self, line: Line) -> Option<Room> {
        match line {
            Line::Pass => Some(None),
            _ => self.current(line)?.try_acquire_owned().ok().map(Some),
        }
    }

    /// The line's room, of which a command that waits takes a part.
    pub(super) fn current(&self, line: Line) -> Option<Arc<AsyncSemaphore>> {
        self.0[line as usize].lock().clone()
    }

    /// `stuck`: the room of a line that does not move, as the callers that were given parts of it do not
    /// poll their commands. Waiters of the line go on to new room.
    pub(super) fn replace(&self, line: Line, stuck: &Arc<AsyncSemaphore>) {
        let mut current = self.0[line as usize].lock();
        if current.as_ref().is_some_and(|room| Arc::ptr_eq(room, stuck)) {
            *current = Some(Arc::new(AsyncSemaphore::new(ROOM)));
        }
        drop(current);
        stuck.close();
    }

    /// The connection is not used any more: its waiters leave.
    pub(super) fn close(&self) {
        for line in &self.0 {
            let room = line.lock().take();
            if let Some(room) = room {
                room.close();
            }
        }
    }
}
