//! [`MultiLock`]: several locks at once, all or none.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::lock_entry::Moment;
use crate::support::foreign;
use crate::support::sync::Mutex;

use crate::lock::context::Context;
use crate::lock::entry::abandon_guard::AbandonGuard;
use crate::lock::error::{LockError, MultiLockError};
use crate::lock::guard::Guard;
use crate::lock::handle::Lock;
use crate::lock::lease::Lease;
use crate::lock::multi_guard::{AT_ONCE, MultiGuard, join};
use crate::lock::name::LockName;

/// Longest time for which an acquisition keeps names during its first wait. Each wait in vain doubles the
/// time for the same call, up to [`LONGEST_KEPT`], so that no call starves.
const KEPT: Duration = Duration::from_millis(50);
const LONGEST_KEPT: Duration = Duration::from_secs(1);

/// Several locks as one: taken together, all or none.
///
/// Made by [`LockClient::get_multi_lock`](crate::LockClient::get_multi_lock). Each name is taken once, by the
/// handle given: plain, fair, read or write, [fenced](Lock::fenced) or [owned](Lock::owned_by).
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { let client = latchwork::LockClient::local();
/// use std::time::Duration;
/// use latchwork::Lease;
///
/// let (alice, bob) = (client.get_lock("account:alice")?, client.get_lock("account:bob")?);
/// let both = client.get_multi_lock([&alice, &bob])?;
/// both.run(async { /* the transfer */ }).await?;
///
/// // One limit for all names: `None` if any name is held by another owner after two seconds.
/// if let Some(guard) = both.try_lock_for(Duration::from_secs(2), Lease::Watched).await? {
///     assert!(alice.try_lock().await?.is_none() && bob.try_lock().await?.is_none());
///     guard.unlock().await?;
/// }
///
/// // Names known at run time.
/// let accounts = ["carol", "dave"].map(|name| client.get_lock(name));
/// let accounts = accounts.into_iter().collect::<Result<Vec<_>, _>>()?;
/// drop(client.get_multi_lock(&accounts)?.lock().await?);
/// # Ok::<(), latchwork::LockError>(()) }).unwrap();
/// ```
///
/// # No deadlock
///
/// Sets of locks in any order, in any process, do not deadlock with each other, nor with holders of single
/// names that wait for a further name:
///
/// * An acquisition first tries all names at once; over Redis, up to 64 names take one round trip.
/// * If some names are held, the acquisition waits in the queue of the first held name, by the order of
///   [`LockName`]. The acquisition keeps the names before the first held name, and gives back the others.
/// * After 25 to 50 ms of waiting, the acquisition gives all names back, and waits on without names and with
///   its position in the queue. Sets of the same client that come to wait behind give their names back at
///   once. Each time doubles the 50 ms for the same call, up to a second.
///
/// Redisson's `RMultiLock` takes its locks one by one in the order given, and unlocks all and starts over
/// when a time limit ends.
///
/// Names that the caller holds by other guards are not given back. Two tasks that each hold a lock outside of
/// the set while they wait for a set can deadlock, as with any lock.
///
/// # Fairness
///
/// A set waits in the queue of one name at a time, as any waiter of the name. If no wait lasts for longer
/// than 25 ms, the set takes its names one after the other, each in turn. After a longer wait the set needs
/// its earlier names again, and waits longer if these names are seldom free when the turn comes. While a set
/// waits, others wait for its earlier names, for a second at most each time. A name that is given back loses
/// the turn, also of a fair lock. [`try_lock`](Self::try_lock) overtakes no waiter; two tries at the same
/// moment, in different clients, may both fail.
///
/// # Leases
///
/// A lease of the caller's own counts from the acquisition of each name, so after a wait the earlier names
/// have less left: [`MultiGuard::remaining`]. All names are held when the call returns: a name whose lease
/// ended during the call is taken anew.
///
/// # Cancel safety
///
/// Dropping the future of an acquisition gives back all names taken so far, as dropping a [`MultiGuard`]
/// does. If a future that was woken is not polled for the [unpolled
/// limit](crate::LockOptions::unpolled_limit), the watchdog gives back the future's names, and the future
/// starts over at its next poll.
///
/// # Costs
///
/// Two commands for each name, in two round trips; each name that is held, or had and given back, costs two
/// commands more. [Metrics](crate::Metrics) and [`stats`](Lock::stats) count each name's attempts.
/// [`run`](Self::run) and [`MultiGuard::lost`] look at all names at each wake-up, and each name causes a
/// wake-up once in the time of a lease.
#[derive(Clone, Debug)]
#[doc(alias = "RMultiLock")]
pub struct MultiLock {
    /// At least one, in the order of names, each name once.
    locks: Arc<[Lock]>,
}

/// Guards of an acquisition, by the number of the lock. The watchdog drops them if the future is unpolled.
type Held = Mutex<Vec<Option<Guard>>>;

impl MultiLock {
    pub(super) fn new(context: &Arc<Context>, mut locks: Vec<Lock>) -> Result<Self, MultiLockError> {
        if let Some(other) = locks.iter().find(|lock| !Arc::ptr_eq(&lock.entry.context, context)) {
            return Err(MultiLockError::OtherClient { name: other.name().clone() });
        }
        locks.sort_by(|one, other| one.name().cmp(other.name()));
        let clash = locks.windows(2).find_map(|pair| clash(&pair[0], &pair[1]));
        clash.map_or(Ok(()), Err)?;
        locks.dedup_by(|again, first| {
            let is_same = again.name() == first.name();
            first.fenced |= is_same && again.fenced;
            is_same
        });
        if locks.is_empty() { Err(MultiLockError::Empty) } else { Ok(Self { locks: locks.into() }) }
    }

    /// The names, each once, in the order of [`LockName`].
    pub fn names(&self) -> impl ExactSizeIterator<Item = &LockName> {
        self.locks.iter().map(Lock::name)
    }

    /// Takes all locks, however long the wait. The watchdog renews the leases while the guard lives.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: see [`MultiLock`].
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock`], with the name that failed; the other names are given back.
    /// [`LockError::Lost`] if a name was taken away during the call.
    pub async fn lock(&self) -> Result<MultiGuard, LockError> {
        self.acquire_without_limit(Lease::Watched).await
    }

    /// As [`lock`](Self::lock), with a lease of the caller's own for each name, which is not renewed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: see [`MultiLock`].
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock), and [`LockError::Lease`] if the lease is invalid, or over too early.
    pub async fn lock_with_lease(&self, lease: Duration) -> Result<MultiGuard, LockError> {
        self.acquire_without_limit(Lease::For(lease)).await
    }

    /// Takes all locks if all are free now. The watchdog renews the leases while the guard lives.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: see [`MultiLock`].
    ///
    /// # Errors
    ///
    /// Those of [`try_lock_for`](Self::try_lock_for).
    pub async fn try_lock(&self) -> Result<Option<MultiGuard>, LockError> {
        self.try_lock_for(Duration::ZERO, Lease::Watched).await
    }

    /// Takes all locks, waiting for at most `wait` in all. `None`, with no lock taken, if another owner has
    /// one of them then. `wait` and `lease` are those of [`Lock::try_lock_for`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: see [`MultiLock`].
    ///
    /// # Errors
    ///
    /// Those of [`Lock::try_lock_for`], with the name that failed; the other names are given back.
    /// [`LockError::Lost`] if a name was taken away during the call.
    pub async fn try_lock_for(
        &self,
        wait: Duration,
        lease: impl Into<Lease>,
    ) -> Result<Option<MultiGuard>, LockError> {
        self.acquire(lease.into(), Some(wait)).await
    }

    /// Takes all locks as [`lock`](Self::lock) does, runs `work`, and gives all back. If one is lost before
    /// `work` is ready, `work` is dropped at once. [`MultiGuard::run`] tells the meaning of the outcomes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`, and gives back all locks that were taken.
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock), with `work` never polled. [`LockError::Lost`] as of
    /// [`MultiGuard::run`].
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, LockError> {
        self.lock().await?.run(work).await
    }

    /// As [`run`](Self::run), for work that looks at its guard: to send [tokens](MultiGuard::fencing_token)
    /// along, or to [ask](MultiGuard::ensure_held) before a step that cannot be undone.
    ///
    /// # Cancel safety
    ///
    /// Same as [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Same as [`run`](Self::run).
    pub async fn run_with<T>(&self, work: impl AsyncFnOnce(&MultiGuard) -> T) -> Result<T, LockError> {
        self.lock().await?.run_with(work).await
    }

    async fn acquire_without_limit(&self, lease: Lease) -> Result<MultiGuard, LockError> {
        let guard = self.acquire(lease, None).await?;
        Ok(guard.expect("only a wait with a limit ends without the locks"))
    }

    async fn acquire(&self, lease: Lease, wait: Option<Duration>) -> Result<Option<MultiGuard>, LockError> {
        let entry = &self.locks[0].entry;
        let ends = wait.filter(|wait| !wait.is_zero()).map(|wait| entry.now() + wait);
        let ends = ends.unwrap_or(Moment::NEVER);
        let is_admitted = !entry.context.is_draining();
        let mut call = Call {
            locks: &self.locks,
            lease,
            wait,
            ends,
            was_refused: false,
            has_waited: false,
            kept: KEPT,
            is_admitted,
        };
        let mut superseded = 0;
        loop {
            // In a child the mutexes may stay locked forever.
            entry.context.check()?;
            let held = Arc::new(Held::new(self.locks.iter().map(|_| None).collect()));
            let takes = Box::pin(call.take(Arc::downgrade(&held)));
            let abandon_guard = AbandonGuard::new(entry, held, None, superseded);
            let Some((held, taken)) = abandon_guard.until_answered(takes).await else {
                superseded = superseded.saturating_add(1);
                continue;
            };
            if !taken? {
                return Ok(None);
            }
            let guards: Vec<Guard> = held.lock().drain(..).flatten().collect();
            return Ok(Some(MultiGuard::new(guards)));
        }
    }
}

/// One call that takes all locks.
struct Call<'a> {
    locks: &'a [Lock],
    lease: Lease,
    wait: Option<Duration>,
    /// End of a wait with a limit; never for a call that may not wait, whose tries may take a round trip.
    ends: Moment,
    /// The store has refused one of the names since the call began.
    was_refused: bool,
    /// The call has waited for a name since the first name in hand.
    has_waited: bool,
    /// Time for which the next wait keeps names.
    kept: Duration,
    is_admitted: bool,
}

impl Call<'_> {
    /// Takes all locks into `held`; false if the time to wait is over.
    ///
    /// No deadlock: a wait of this function that has names in hand ends within [`LONGEST_KEPT`], a try when
    /// the store has answered, and every other wait has no name in hand. So no task waits for names of this
    /// call for longer, whatever this call waits for: each cycle of waits that goes through the call
    /// dissolves. Among sets no cycle forms at all: each waits for a name greater than all names in hand.
    async fn take(&mut self, held: Weak<Held>) -> Result<bool, LockError> {
        let context = &self.locks[0].entry.context;
        self.has_waited = false;
        loop {
            let missing: Vec<usize> = (0..self.locks.len()).filter(|at| !has(&held, *at)).collect();
            let mut first = None;
            for some in missing.chunks(AT_ONCE) {
                let tried = {
                    let tries = pin!(join(some.iter().map(|at| self.try_one(*at, &held))));
                    context.until(self.ends, tries).await
                };
                let Some(tried) = tried else {
                    return self.time_over(*some.iter().find(|at| !has(&held, **at)).unwrap_or(&some[0]));
                };
                for (at, tried) in some.iter().zip(tried) {
                    match tried {
                        Ok(true) => continue,
                        Ok(false) => self.was_refused = true,
                        Err(error) if self.outwaits(&error) => {}
                        Err(error) => return Err(error),
                    }
                    first.get_or_insert(*at);
                }
                if first.is_some() {
                    break;
                }
            }
            let Some(first) = first else {
                match self.lasts(&held) {
                    Ok(()) => return Ok(true),
                    // A lease ended while the call waited for another name.
                    Err(_) if self.has_waited => self.has_waited = false,
                    // Leases that do not outlast the tries would be asked for without end.
                    Err(error) => return Err(error),
                }
                continue;
            };
            keep(&held, first);
            let now = context.now();
            let wait = self.ends.saturating_duration_since(now);
            if !self.may_wait() || wait.is_zero() {
                return self.time_over(first);
            }
            self.has_waited = true;
            match self.wait_for(first, now, wait, &held).await {
                Ok(Some(guard)) => put(&held, first, guard),
                Ok(None) => {
                    self.was_refused = true;
                    return Ok(false);
                }
                Err(LockError::NoAnswer { .. }) => return self.time_over(first),
                Err(error) => return Err(error),
            }
        }
    }

    /// Fails if a lease in hand is over.
    fn lasts(&self, held: &Weak<Held>) -> Result<(), LockError> {
        let Some(held) = held.upgrade() else { return Ok(()) };
        held.lock().iter().flatten().try_for_each(Guard::lasts)
    }

    /// True if a try that failed counts as refused. As with a single lock, a call with a limit outwaits a
    /// store that is gone, and a call without a limit once it waits.
    fn outwaits(&self, error: &LockError) -> bool {
        let is_patient = self.wait.is_some() || self.has_waited || self.was_refused;
        match error {
            _ if !self.may_wait() => false,
            LockError::NoAnswer { .. } => true,
            error => is_patient && (error.is_unreachable() || error.is_indeterminate()),
        }
    }

    /// Tries one lock, and keeps its guard; false if another owner has the lock.
    async fn try_one(&self, at: usize, held: &Weak<Held>) -> Result<bool, LockError> {
        let guard: Option<Guard> =
            self.locks[at].acquire(self.lease, Some(Duration::ZERO), self.is_admitted, || None).await?;
        Ok(guard.map(|guard| put(held, at, guard)).is_some())
    }

    /// Waits for one lock, at first with the locks before in hand.
    async fn wait_for(
        &mut self,
        at: usize,
        now: Moment,
        wait: Duration,
        held: &Weak<Held>,
    ) -> Result<Option<Guard>, LockError> {
        let (lock, context) = (&self.locks[at], &self.locks[at].entry.context);
        let mut turn = Box::pin(lock.acquire(self.lease, Some(wait), self.is_admitted, || None));
        if at == 0 {
            return turn.await;
        }
        // Behind a set that has given its names back, the names before would be kept for nothing, and each
        // set of a queue would keep them in turn.
        if !lock.entry.is_waited_for_bare() {
            // At random: two tasks that give way at the same moment would meet again.
            let random = foreign::call("a random number", || context.store.random()).unwrap_or_default();
            let kept = self.kept.mul_f64(0.5 + 0.5 * (random as f64 / u64::MAX as f64));
            if let Some(taken) = context.until(now + kept, turn.as_mut()).await {
                return taken;
            }
            self.kept = LONGEST_KEPT.min(self.kept * 2);
        }
        keep(held, 0);
        let _waits = lock.entry.wait_bare();
        turn.await
    }

    fn may_wait(&self) -> bool {
        self.wait != Some(Duration::ZERO)
    }

    fn time_over(&self, at: usize) -> Result<bool, LockError> {
        let lock = &self.locks[at];
        // The end of the runtime fires its timers early.
        lock.entry.context.check()?;
        let wait = self.wait.unwrap_or_default();
        match self.was_refused {
            true => Ok(false),
            false => Err(LockError::NoAnswer { name: lock.name().clone(), wait }),
        }
    }
}

fn has(held: &Weak<Held>, at: usize) -> bool {
    held.upgrade().is_some_and(|held| held.lock()[at].as_ref().is_some_and(|guard| guard.lasts().is_ok()))
}

/// Keeps the guard; gives the lock back if the watchdog has taken the other guards away.
fn put(held: &Weak<Held>, at: usize, guard: Guard) {
    let Some(held) = held.upgrade() else { return };
    // Dropping a guard calls wakers, so a guard whose lease is over leaves the mutex first.
    let _ended = { held.lock()[at].replace(guard) };
}

/// Gives back the locks from `first` on. Dropping a guard calls wakers, so the guards leave the mutex first.
fn keep(held: &Weak<Held>, first: usize) {
    let given_back: Vec<Option<Guard>> = match held.upgrade() {
        Some(held) => held.lock()[first..].iter_mut().map(Option::take).collect(),
        None => Vec::new(),
    };
    drop(given_back);
}

/// Returns the error if two locks, neighbours in the order of names, have one name and differ otherwise.
fn clash(one: &Lock, other: &Lock) -> Option<MultiLockError> {
    let (name, modes) = (one.name(), [one.entry.mode, other.entry.mode]);
    if name != other.name() {
        None
    } else if modes[0] != modes[1] {
        Some(MultiLockError::TwoKinds { name: name.clone(), modes })
    } else if one.owner != other.owner {
        Some(MultiLockError::TwoOwners { name: name.clone() })
    } else {
        None
    }
}
