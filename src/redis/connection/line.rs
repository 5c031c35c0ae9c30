//! [`Lines`]: room on a connection for so many commands at a time. The others wait before it, in order: a
//! crowd that had all been sent would fill the memory, and the replies to its first would come after its
//! limits.

use std::sync::Arc;

use crate::sync::Mutex;
use crate::{AsyncSemaphore, OwnedSemaphorePermit};

use super::budget::ROOM;

/// Where a command waits until there is room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Ask,
    /// What frees a name, for which others may wait, does not wait behind these.
    GiveBack,
    /// Nowhere: there are few.
    Pass,
}

/// The lines before one connection, through all that are made for it.
pub(super) struct Lines([Mutex<Arc<AsyncSemaphore>>; 2]);

impl Default for Lines {
    fn default() -> Self {
        Self([(); 2].map(|()| Mutex::new(Self::empty())))
    }
}

impl Lines {
    fn empty() -> Arc<AsyncSemaphore> {
        Arc::new(AsyncSemaphore::new(ROOM))
    }

    /// `None` if there is no line.
    pub(super) fn get(&self, line: Line) -> Option<Arc<AsyncSemaphore>> {
        self.0.get(line as usize).map(|line| Arc::clone(&line.lock()))
    }

    /// `stuck`: the line that does not move any more, as the callers that have its room keep their commands
    /// and do not poll them. Those that wait in it come to a new one.
    pub(super) fn replace(&self, line: Line, stuck: &Arc<AsyncSemaphore>) {
        let mut current = self.0[line as usize].lock();
        if Arc::ptr_eq(&current, stuck) {
            *current = Self::empty();
        }
        drop(current);
        stuck.close();
    }
}

/// What a command has while it is under way, however often it is sent.
pub(crate) type Room = Option<OwnedSemaphorePermit>;
