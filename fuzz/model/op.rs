//! What is done with a semaphore, and how it is written as bytes.

use latchwork::AsyncSemaphore;

/// One operation. `which` picks among those futures or permits that there are, and nothing is done if there
/// are none.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// Makes a future for `min` permits and up to `more`, and does not poll it.
    Acquire { min: usize, more: usize, owned: bool },
    /// Polls a future, with one of its two wakers.
    Poll { which: usize, bell: usize },
    /// Drops a future.
    Cancel { which: usize },
    /// Tries.
    Try { permits: usize, owned: bool },
    /// `blocking_acquire_timeout` with hardly any time: waits, and gives up at once.
    TryBriefly { permits: usize },
    /// Drops permits.
    PendingRelease { which: usize },
    /// Takes some off into permits of their own.
    Split { which: usize, permits: usize },
    /// Puts two together.
    Merge { which: usize, other: usize },
    /// Takes permits that are held out of existence.
    Forget { which: usize },
    /// Takes permits that are free out of existence.
    ForgetPermits { permits: usize },
    /// Adds permits, or as many as may be added.
    AddPermits { permits: usize },
    /// Sets the capacity.
    SetCapacity { permits: usize },
    /// Makes `len` futures and polls them, so that the queue is longer than a wake batch, and than what is
    /// swept at once.
    Queue { len: usize, min: usize, owned: bool },
    /// Drops `len` futures, going on from `which`.
    Disperse { which: usize, len: usize },
    /// Closes.
    Close,
}

impl Op {
    /// Any four bytes are an operation: so a fuzzer never changes a byte in vain, and lower ones are
    /// something simpler. The first says which operation it is; the wider its range, the more often it is
    /// done.
    fn decode([op, which, first, second]: [u8; 4]) -> Self {
        let permits = amount(first);
        let owned = which % 2 == 1;
        let (which, other) = (usize::from(which), usize::from(second));
        match op {
            0..=39 => {
                Self::Acquire { min: permits.min(AsyncSemaphore::MAX_PERMITS), more: more(second), owned }
            }
            40..=89 => Self::Poll { which, bell: other % 2 },
            90..=109 => Self::Cancel { which },
            110..=129 => Self::Try { permits, owned },
            130..=159 => Self::PendingRelease { which },
            160..=179 => Self::AddPermits { permits },
            180..=204 => Self::SetCapacity { permits: permits.min(AsyncSemaphore::MAX_PERMITS) },
            205..=214 => Self::Split { which, permits },
            215..=222 => Self::Merge { which, other },
            223..=228 => Self::Forget { which },
            229..=234 => Self::ForgetPermits { permits },
            235..=241 => Self::TryBriefly { permits: permits.min(AsyncSemaphore::MAX_PERMITS) },
            242..=247 => {
                Self::Queue { len: other % 64, min: permits.min(AsyncSemaphore::MAX_PERMITS), owned }
            }
            248..=253 => Self::Disperse { which, len: other % 64 },
            254..=255 => Self::Close,
        }
    }
}

/// Mostly few, where requests get into each other's way; now and then dozens, or about as many as fit into a
/// number.
fn amount(byte: u8) -> usize {
    match byte {
        // One is the simplest, and none the last: nothing comes of a request for none.
        0..=175 => usize::from(byte / 22 + 1) % 8,
        176..=239 => usize::from(byte - 168),
        240..=246 => (u32::MAX as usize - 2).saturating_add(usize::from(byte - 240)),
        247..=254 => AsyncSemaphore::MAX_PERMITS - 3 + usize::from(byte - 247) % 4,
        255 => usize::MAX,
    }
}

/// How many more than its least an `acquire_up_to` takes: mostly it is not one.
fn more(byte: u8) -> usize {
    match byte {
        0..=159 => 0,
        160..=254 => usize::from(byte - 159).div_ceil(12),
        255 => usize::MAX,
    }
}

/// So many permits to begin with, and what is then done.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) permits: usize,
    pub(crate) ops: Vec<Op>,
}

impl Script {
    /// One byte for the permits, and four for each operation.
    pub(crate) fn decode(permits: u8, ops: &[[u8; 4]]) -> Self {
        Self {
            permits: amount(permits).min(AsyncSemaphore::MAX_PERMITS),
            ops: ops.iter().map(|op| Op::decode(*op)).collect(),
        }
    }
}
