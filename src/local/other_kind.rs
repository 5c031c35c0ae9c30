use std::error::Error;
use std::fmt;

use crate::lock::LockKind;

/// The name is held as another kind of lock; nothing changed. Give each kind of lock its own names.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// use std::time::{Duration, Instant};
/// use latchwork::backend::{AcquireRequest, Backend, LockName, Mode};
/// use latchwork::{LeaseId, LockKind, local::Local};
/// # let id: LeaseId = "8743c9c0-0795-4907-87fd-6c719a6b4586:1".parse()?;
/// # let (name, lease, now) = (LockName::new("orders:42")?, Duration::from_secs(30), Instant::now().into());
/// let (local, request) = (Local::new(), AcquireRequest::new(id, lease, now));
/// local.acquire(Mode::Plain, &name, &request).await?;
/// let error = local.acquire(Mode::Fair, &name, &request).await.unwrap_err();
/// assert_eq!(error.found(), LockKind::Plain);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherKind(LockKind);

impl OtherKind {
    pub(super) fn new(found: LockKind) -> Self {
        Self(found)
    }

    /// Returns the kind of lock that holds the name.
    pub fn found(&self) -> LockKind {
        self.0
    }
}

impl fmt::Display for OtherKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name is held as a {}", self.0)
    }
}

impl Error for OtherKind {}
