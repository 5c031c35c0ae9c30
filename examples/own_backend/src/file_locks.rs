//! A lock backend over a directory of files: a starting point for a backend over a store of your own.
//!
//! A backend consists of four parts. For another store, replace them one by one and keep the suite green
//! (`tests.rs` here runs the suite that every backend has to pass):
//!
//! | part | here |
//! |---|---|
//! | a step that is atomic against all other processes | [`Files::step`]: renaming a file, which is a compare-and-swap |
//! | a lease that expires by itself | the time in the file's name, by the system's clock |
//! | messages that wake waiters | [`Watch`]: polls every few milliseconds; use the store's notifications if it has any |
//! | a clock, timers, background work | the library's own [`ThreadRuntime`]; use your executor if you have one |
//!
//! # Representation of a lock
//!
//! A name has a directory with exactly one file, empty, whose *name* says which lease has the lock:
//! `free.<token>`, or `<token>.<seconds>.<nanoseconds>.<lease's id>`, where the time is the lease's end.
//! Every change renames the file, and renaming fails if another process has renamed the file first: then the
//! step is repeated with the new state. No process can die in the middle of a step, so there is nothing to
//! repair.
//!
//! # Limitations
//!
//! * Processes of one machine only: over a network, `rename` may report a failure although it succeeded.
//! * Setting the system's clock makes leases longer or shorter.
//! * A hanging file system blocks the caller. A store that can be slow needs a time limit, and a thread of
//!   its own.
//! * The directory of a name stays when the lock is free, and file systems refuse lock names over 127 bytes.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use latchwork::backend::{
    AcquireOutcome, AcquireRequest, Backend, Channels, Inbox, LeaseKey, LockName, Message, Mode, NextWaiter,
    Registry, ReleaseOutcome, Runtime, Transport,
};
use latchwork::local::ThreadRuntime;
use latchwork::{Holder, LeaseId};

#[derive(Clone)]
pub(crate) struct FileLocks {
    files: Files,
    registry: Registry<Watch>,
    runtime: ThreadRuntime,
}

impl FileLocks {
    /// `directory` must exist and be used for nothing else.
    pub(crate) fn new(directory: &Path) -> Self {
        let (files, runtime) = (Files(Arc::from(directory)), ThreadRuntime::new());
        let watch = Watch { files: files.clone(), runtime: runtime.clone(), watched: Mutex::default() };
        Self { files, registry: Registry::new(watch), runtime }
    }

    fn step<T>(&self, name: &LockName, change: impl Fn(Duration, State) -> (State, T)) -> io::Result<T> {
        self.files.step(&Files::directory_name(name), change)
    }
}

// === The atomic step ===

/// The token and the lease of a lock, with times counted from 1970.
#[derive(Clone, PartialEq)]
struct State {
    /// The last fencing token.
    token: u64,
    lease: Option<Lease>,
}

#[derive(Clone, PartialEq)]
struct Lease {
    until: Duration,
    id: String,
}

/// The id as text: Windows allows no colon in a file's name.
fn text(id: &LeaseId) -> String {
    id.to_string().replace(':', "_")
}

fn from_text(text: &str) -> Option<LeaseId> {
    text.replace('_', ":").parse().ok()
}

fn to_file_name(State { token, lease }: &State) -> String {
    match lease {
        None => format!("free.{token}"),
        Some(Lease { until, id }) => format!("{token}.{}.{}.{id}", until.as_secs(), until.subsec_nanos()),
    }
}

/// `None` for a foreign file.
fn from_file_name(name: &str) -> Option<State> {
    if let Some(token) = name.strip_prefix("free.") {
        return Some(State { token: token.parse().ok()?, lease: None });
    }
    let mut parts = name.splitn(4, '.');
    let token = parts.next()?.parse().ok()?;
    let until = Duration::new(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(State { token, lease: Some(Lease { until, id: parts.next()?.to_owned() }) })
}

#[derive(Clone)]
struct Files(Arc<Path>);

impl Files {
    /// The name of the lock's directory, in hexadecimal digits: a lock's name may contain slashes.
    fn directory_name(name: &LockName) -> String {
        name.as_str().bytes().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Changes the holder of a lock, in one step: `change` gets the time and the state without an expired
    /// lease, and returns the new state and the answer. It is called again if another process was quicker.
    fn step<T>(&self, directory: &str, change: impl Fn(Duration, State) -> (State, T)) -> io::Result<T> {
        let place = self.0.join(directory);
        loop {
            let file = self.current(&place)?;
            let mut found = from_file_name(&file).ok_or_else(|| {
                io::Error::new(ErrorKind::InvalidData, format!("not a lock's file: {file}"))
            })?;
            let now = SystemTime::UNIX_EPOCH.elapsed().map_err(io::Error::other)?;
            found.lease = found.lease.filter(|lease| lease.until > now);
            let (next, answer) = change(now, found.clone());
            if next == found {
                return Ok(answer);
            }
            match fs::rename(place.join(&file), place.join(to_file_name(&next))) {
                Ok(()) => return Ok(answer),
                // Another process has renamed the file: look again.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn current(&self, place: &Path) -> io::Result<String> {
        loop {
            match fs::read_dir(place).map(|mut files| files.next()) {
                Ok(Some(file)) => return Ok(file?.file_name().to_string_lossy().into_owned()),
                // The file was renamed during the listing, and so missed: list again.
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => self.create(place)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Creates the directory of a lock together with its file: under another name, and then renamed. The
    /// renaming fails if another process was quicker, because no directory replaces one that is not empty.
    fn create(&self, place: &Path) -> io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Ordering: Relaxed, only the uniqueness of the number matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let fresh: PathBuf = self.0.join(format!("new-{}-{number}", std::process::id()));
        match fs::create_dir(&fresh) {
            // Left by a process that died here and had the same id. The caller retries with the next number.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
            made => made?,
        }
        File::create_new(fresh.join(to_file_name(&State { token: 0, lease: None })))?;
        match fs::rename(&fresh, place) {
            Err(_) if place.is_dir() => fs::remove_dir_all(&fresh),
            made => made,
        }
    }
}

// === The messages ===

/// How often a waiter checks for a free lock.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Delivers messages for as long as a lock is free. A superfluous message costs only an attempt.
pub(crate) struct Watch {
    files: Files,
    runtime: ThreadRuntime,
    /// Dropping the value of a channel ends the channel's task.
    pub(crate) watched: Mutex<HashMap<Arc<str>, Arc<()>>>,
}

impl Transport for Watch {
    fn subscribe(&self, channel: &Arc<str>, inbox: Inbox) {
        let wanted = Arc::new(());
        let still_wanted = Arc::downgrade(&wanted);
        self.watched.lock().unwrap().insert(Arc::clone(channel), wanted);
        // From now on a free lock is noticed. With a server, call this when the server has confirmed.
        inbox.ready();
        let (files, runtime, channel) = (self.files.clone(), self.runtime.clone(), Arc::clone(channel));
        self.runtime.spawn(async move {
            while still_wanted.strong_count() > 0 {
                runtime.sleep_until(runtime.now() + LOOK_AGAIN).await;
                // On an error, wake the waiters: their attempts meet the error, too.
                if files.step(&channel, |_, state| (state.clone(), state.lease.is_none())).unwrap_or(true) {
                    inbox.deliver(Message::Unlock);
                }
            }
        });
    }

    fn unsubscribe(&self, channel: &Arc<str>) {
        self.watched.lock().unwrap().remove(channel);
    }
}

// === The backend ===

impl Backend for FileLocks {
    type Error = io::Error;
    type Transport = Watch;
    type Runtime = ThreadRuntime;

    fn registry(&self) -> &Registry<Watch> {
        &self.registry
    }

    fn runtime(&self) -> &ThreadRuntime {
        &self.runtime
    }

    fn channels(&self, _: Mode, name: &LockName, _: &str) -> Channels {
        Channels::one(Files::directory_name(name))
    }

    async fn acquire(
        &self,
        _: Mode,
        name: &LockName,
        request: &AcquireRequest,
    ) -> io::Result<AcquireOutcome> {
        let id = text(&request.id);
        self.step(name, |now, state| match state.lease {
            Some(ref other) if other.id != id => {
                (state.clone(), AcquireOutcome::Held { left: other.until - now })
            }
            ours => {
                let token = state.token + request.tokens;
                // Never shorter than before: this command may be late.
                let until = now.saturating_add(request.lease).max(ours.map_or(now, |ours| ours.until));
                let lease = Some(Lease { until, id: id.clone() });
                let last_token = if request.tokens > 0 { token } else { 0 };
                (State { token, lease }, AcquireOutcome::Acquired { last_token })
            }
        })
    }

    async fn release(
        &self,
        _: Mode,
        name: &LockName,
        id: &LeaseId,
        _: Option<&NextWaiter>,
    ) -> io::Result<ReleaseOutcome> {
        let id = text(id);
        self.step(name, |_, state| match state.lease {
            // The watchers notice the free lock. With a server, publish the message in this very step.
            Some(ours) if ours.id == id => {
                (State { lease: None, ..state }, ReleaseOutcome::Released { receivers: 0 })
            }
            lease => (State { lease, ..state }, ReleaseOutcome::NotHeld),
        })
    }

    async fn renew(&self, _: Mode, leases: &[LeaseKey], lease: Duration) -> io::Result<Vec<bool>> {
        let renew_one = |LeaseKey { name, id }: &LeaseKey| {
            let id = text(id);
            self.step(name, |now, state| match state.lease {
                Some(ours) if ours.id == id => {
                    let until = ours.until.max(now.saturating_add(lease));
                    (State { lease: Some(Lease { until, ..ours }), ..state }, true)
                }
                lease => (State { lease, ..state }, false),
            })
        };
        leases.iter().map(renew_one).collect()
    }

    async fn force_release(&self, _: Mode, name: &LockName) -> io::Result<bool> {
        self.step(name, |_, state| (State { lease: None, ..state }, state.lease.is_some()))
    }

    async fn holders(&self, _: Mode, name: &LockName) -> io::Result<Vec<Holder>> {
        self.step(name, |now, state| {
            let holder = |lease: &Lease| Holder::new(from_text(&lease.id), lease.until - now);
            (state.clone(), state.lease.iter().map(holder).collect())
        })
    }
}
