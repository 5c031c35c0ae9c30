//! [`ReadWriteLock`]: the handle of the two sides of one name.

use std::fmt;

use crate::lock::handle::Lock;
use crate::lock::name::LockName;

/// A named lock that many may have to read, or one to write.
///
/// Both sides are [`Lock`]s, and all that a lock can do they do, with these differences:
///
/// | | [`read`](Self::read) | [`write`](Self::write) |
/// |---|---|---|
/// | has it | any number of [`Owner`](crate::Owner)s | one, while no other reads |
/// | an owner that has the other side | writes: it reads as well, at once; if it lets go of the write lock first, it reads on, and others may | reads: [`LockError::Upgrade`](crate::LockError::Upgrade), as it would wait for itself |
/// | [`holder`](Lock::holder), [`is_locked`](Lock::is_locked), [`remaining`](Lock::remaining) | of the readers, the one whose lease lasts longest | of the writer |
/// | [`force_unlock`](Lock::force_unlock) | both sides | both sides |
/// | [tokens](Lock::fenced) | greater than all writers' before; the same for all readers until a writer has another, so that they do not fence each other off | greater than all before |
///
/// # Fairness
///
/// Writers have the lock in the order in which they began to wait, in whatever process, as with a [fair
/// lock](crate::LockClient::get_fair_lock). Readers and writers take turns: a reader does not go before a
/// writer that waits already, and when a writer leaves, the readers that wait come before the next writer. So
/// a writer waits for the present readers and for one turn of readers, a reader for one writer. Except for
/// what is said of fair locks, and:
///
/// * an owner that reads takes the read lock again at once, before all waiters;
/// * readers of one client join its present readers, within the [tenure](crate::LockOptions::tenure)
///   of their lease, and the waiters here get in along with the first of them;
/// * a writer whose lease ends by itself may leave the lock to the next writer, before the readers that wait:
///   a Redis server forgets a lock with its last lease, and whether it was one to write.
///
/// # At the store
///
/// The readers of a client have one lease together. It lasts for as long as the longest of them needs; each
/// is ended by its own, and none is made shorter by another's. Joining and leaving takes no command,
/// except for the first and the last, and once per tenure to ask whether a writer waits.
///
/// [Kinds of locks] says what it costs beside the plain and the fair lock.
///
/// [Kinds of locks]: https://github.com/latchwork/latchwork/blob/main/docs/kinds.md
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// use latchwork::LockClient;
///
/// let client = LockClient::local();
/// let prices = client.get_read_write_lock("prices")?;
/// let one = prices.read().lock().await?;
/// let other = prices.read().lock().await?;
/// assert!(prices.write().try_lock().await?.is_none());
/// drop((one, other));
///
/// // To write, and go on reading what was written.
/// let me = client.owner();
/// let writes = prices.write().owned_by(&me).lock().await?;
/// let reads = prices.read().owned_by(&me).lock().await?;
/// writes.unlock().await?;
/// assert!(prices.read().try_lock().await?.is_some());
/// assert!(prices.write().owned_by(&me).try_lock().await.unwrap_err().is_upgrade());
/// reads.unlock().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
#[doc(alias = "RwLock")]
pub struct ReadWriteLock {
    read: Lock,
    write: Lock,
}

impl ReadWriteLock {
    pub(super) fn new(read: Lock, write: Lock) -> Self {
        Self { read, write }
    }

    /// The lock that many have at a time.
    pub fn read(&self) -> &Lock {
        &self.read
    }

    /// The write lock: held by one owner, while there are no readers.
    pub fn write(&self) -> &Lock {
        &self.write
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.read.name()
    }
}

impl fmt::Debug for ReadWriteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadWriteLock").field("name", self.name()).finish_non_exhaustive()
    }
}
