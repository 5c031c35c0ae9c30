//! The operations on a semaphore, and their encoding as bytes.

use latchwork::AsyncSemaphore;

/// An operation. `which` picks among the existing futures or permits; without any, nothing happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// Makes a future for `min` permits and up to `more`, without polling it.
    Acquire { min: usize, more: usize, owned: bool },
    /// Polls a future, with one of its two wakers.
    Poll { which: usize, bell: usize },
    Cancel { which: usize },
    Try { permits: usize, owned: bool },
    /// `blocking_acquire_timeout` with hardly any time: waits, and gives up at once.
    TryBriefly { permits: usize },
    PendingRelease { which: usize },
    /// Splits some permits off.
    Split { which: usize, permits: usize },
    Merge { which: usize, other: usize },
    Forget { which: usize },
    ForgetPermits { permits: usize },
    /// Adds permits, up to the maximum.
    AddPermits { permits: usize },
    SetCapacity { permits: usize },
    /// Makes `len` futures and polls them: the queue grows longer than a wake batch, and than a sweep.
    Queue { len: usize, min: usize, owned: bool },
    /// Drops `len` futures, beginning at `which`.
    Disperse { which: usize, len: usize },
    Close,
}

impl Op {
    /// Any four bytes are an operation: a fuzzer never changes a byte in vain, and lower bytes are simpler.
    /// The first byte selects the operation; the wider its range, the more frequent the operation.
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

/// Mostly small amounts, which interfere; now and then dozens, or about the maximum of a number.
fn amount(byte: u8) -> usize {
    match byte {
        // 1 is the simplest, and 0 the last: a request for zero permits does nothing.
        0..=175 => usize::from(byte / 22 + 1) % 8,
        176..=239 => usize::from(byte - 168),
        240..=246 => (u32::MAX as usize - 2).saturating_add(usize::from(byte - 240)),
        247..=254 => AsyncSemaphore::MAX_PERMITS - 3 + usize::from(byte - 247) % 4,
        255 => usize::MAX,
    }
}

/// Permits beyond the minimum of an `acquire_up_to`: mostly 0, for a plain acquire.
fn more(byte: u8) -> usize {
    match byte {
        0..=159 => 0,
        160..=254 => usize::from(byte - 159).div_ceil(12),
        255 => usize::MAX,
    }
}

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
