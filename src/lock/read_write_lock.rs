//! [`ReadWriteLock`]: the handle of the two sides of one name.

use crate::lock::handle::Lock;
use crate::lock::name::LockName;

/// A named lock for many readers, or one writer.
///
/// Both sides are [`Lock`]s and do all that a lock can do, with these differences:
///
/// | | [`read`](Self::read) | [`write`](Self::write) |
/// |---|---|---|
/// | holders | any number of [`Owner`](crate::Owner)s | one owner, while no other reads |
/// | an owner that has the other side | a writer reads as well, at once; if the owner gives the write lock back first, the owner reads on, and other readers may join | a reader fails with [`LockError::Upgrade`](crate::LockError::Upgrade), as the owner would wait for itself |
/// | [`holder`](Lock::holder), [`is_locked`](Lock::is_locked), [`remaining`](Lock::remaining) | of the reader whose lease lasts longest | of the writer |
/// | [`force_unlock`](Lock::force_unlock) | both sides | both sides |
/// | [tokens](Lock::fenced) | greater than the tokens of all writers before; the same for all readers until a writer has another token, so that readers do not fence each other off | greater than all tokens before |
///
/// # Fairness
///
/// Writers of all processes have the lock in order of arrival. A reader does not overtake a waiting writer,
/// and after a writer the waiting readers come before the next writer. Thus a writer waits for the present
/// readers and a turn of readers, a reader for one writer. The exceptions are those of [fair
/// locks](crate::LockClient::get_fair_lock), and:
///
/// * an owner that reads takes the read lock again at once, before all waiters;
/// * readers of a client join its present readers, within the [tenure](crate::LockOptions::tenure) of their
///   lease, and the client's waiting readers get in along with the first of them;
/// * a writer whose lease ends by itself may leave the lock to the next writer, before the waiting readers.
///
/// # At the store
///
/// The readers of a client share one lease, as long as the longest of their own leases. Only the first and
/// the last reader send a command, and once per tenure one reader asks if a writer waits. [Kinds of locks]
/// compares the costs.
///
/// [Kinds of locks]: https://github.com/latchwork/latchwork/blob/main/docs/kinds.md
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
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
#[derive(Clone, Debug)]
#[doc(alias = "RwLock")]
pub struct ReadWriteLock {
    read: Lock,
    write: Lock,
}

impl ReadWriteLock {
    pub(super) fn new(read: Lock, write: Lock) -> Self {
        Self { read, write }
    }

    /// The read lock, which many owners may hold at a time.
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
