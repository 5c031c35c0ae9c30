//! [`Lines`]: room on a connection for so many commands at a time. The others wait before it, in order: a
//! crowd that had all been sent would fill the memory, and the replies to its first would come after its
//! limits.

use std::sync::Arc;

use crate::sync::Mutex;
use crate::{AsyncSemaphore, OwnedSemaphorePermit};

use super::budget::ROOM;

/// The line in which a command waits until there is room for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Line {
    #[default]
    Ask,
    /// What frees a name, for which others may wait, does not wait behind these.
    GiveBack,
    /// None: there are few.
    Pass,
}

/// The place of a command among those that are under way; none is counted of those that pass.
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
    /// poll their commands. Those that wait come to a new room.
    pub(super) fn replace(&self, line: Line, stuck: &Arc<AsyncSemaphore>) {
        let mut current = self.0[line as usize].lock();
        if current.as_ref().is_some_and(|room| Arc::ptr_eq(room, stuck)) {
            *current = Some(Arc::new(AsyncSemaphore::new(ROOM)));
        }
        drop(current);
        stuck.close();
    }

    /// The connection is not used any more: those that wait before it leave.
    pub(super) fn close(&self) {
        for line in &self.0 {
            let room = line.lock().take();
            if let Some(room) = room {
                room.close();
            }
        }
    }
}
