//! [`Owner`]: the holder of a lock inside of a client; [`LeaseId`]: the store's name of a lease.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use uuid::Uuid;

/// The holder of a lock, as an explicit handle: a client and a number.
///
/// An owner that holds a lock can take the lock again. Tasks move between threads, so an owner is a value to
/// pass around, and not the thread as in Redisson. Copies are the same owner. The store knows no owners.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { let client = latchwork::LockClient::local();
/// let me = client.owner();
/// let lock = client.get_lock("orders:42")?.owned_by(&me);
/// let (outer, inner) = (lock.lock().await?, lock.lock().await?);
/// assert_eq!(outer.owner(), inner.owner());
/// # Ok::<(), latchwork::LockError>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    pub(super) client: Uuid,
    pub(super) number: u64,
}

impl Owner {
    pub(super) fn new(client: Uuid, number: u64) -> Self {
        Self { client, number }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client, self.number)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({self})")
    }
}

/// A lease's id at the store: `<client's uuid>:<number>`, and `:<label>` with a
/// [label](crate::LockOptions::label).
///
/// The number is new for each lease, so a late release frees no other lease. [`FromStr`] reads the text.
///
/// # Examples
///
/// ```
/// use latchwork::LeaseId;
///
/// let id: LeaseId = "8743c9c0-0795-4907-87fd-6c719a6b4586:42:worker-3".parse()?;
/// assert_eq!((id.number(), id.label()), (42, Some("worker-3")));
/// assert_eq!(id.to_string(), "8743c9c0-0795-4907-87fd-6c719a6b4586:42:worker-3");
/// # Ok::<(), latchwork::lock::LeaseIdError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LeaseId {
    client: Uuid,
    number: u64,
    label: Option<Arc<str>>,
}

impl LeaseId {
    pub(super) fn new(client: Uuid, number: u64, label: Option<Arc<str>>) -> Self {
        Self { client, number, label }
    }

    /// The uuid of the client that has the lease, equal to [`LockClient::id`](crate::LockClient::id).
    pub fn client_id(&self) -> String {
        self.client.to_string()
    }

    /// The lease's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The label of the client that has the lease.
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client, self.number)?;
        match &self.label {
            Some(label) => write!(f, ":{label}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({self})")
    }
}

impl FromStr for LeaseId {
    type Err = LeaseIdError;

    fn from_str(text: &str) -> Result<Self, LeaseIdError> {
        let mut parts = text.splitn(3, ':');
        let mut next = || parts.next().ok_or(LeaseIdError(()));
        let client = Uuid::try_parse(next()?).map_err(|_| LeaseIdError(()))?;
        let number = next()?.parse().map_err(|_| LeaseIdError(()))?;
        Ok(Self { client, number, label: parts.next().map(Arc::from) })
    }
}

/// The error of a text that is no [`LeaseId`]: no client of this crate or of Redisson wrote the text.
///
/// # Examples
///
/// ```
/// use latchwork::LeaseId;
/// use latchwork::lock::LeaseIdError;
///
/// let error: LeaseIdError = "worker-3".parse::<LeaseId>().unwrap_err();
/// assert!(error.to_string().contains("<uuid>:<number>"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseIdError(());

impl fmt::Display for LeaseIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a lease's id; it is written <uuid>:<number>, with :<label> if the client has one")
    }
}

impl Error for LeaseIdError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_text_is_its_parts_and_is_read_back() {
        for number in [0, 9, 10, 1_234_567_890, u64::MAX] {
            for label in [None, Some("worker-3")] {
                let id = LeaseId::new(Uuid::max(), number, label.map(Arc::from));
                let label = label.map(|label| format!(":{label}")).unwrap_or_default();
                assert_eq!(id.to_string(), format!("{}:{number}{label}", Uuid::max()));
                assert_eq!(id.to_string().parse(), Ok(id));
            }
        }
    }
}
