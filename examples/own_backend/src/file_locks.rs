//! A lock backend over a directory of files: where to start when the locks are to be kept in a store of your
//! own.
//!
//! A backend is four things. For another store, replace them one by one and keep the suite green (`tests.rs`
//! here runs the suite that every backend has to pass):
//!
//! | what | here |
//! |---|---|
//! | a step that is atomic against all other processes | [`Files::step`]: renaming a file, which is a compare-and-swap |
//! | a lease that ends by itself | the time in the file's name, by the system's clock |
//! | messages that wake waiters | [`Watch`]: looks every few milliseconds; take the store's notifications if it has any |
//! | a clock, timers, background work | the library's own [`ThreadRuntime`]; take your executor if you have one |
//!
//! # How a lock is kept
//!
//! A name has a directory, and in it is exactly one file, empty, whose *name* says which lease has the lock:
//! `free.<token>`, or `<token>.<seconds>.<nanoseconds>.<lease's id>`, where the time is the lease's end. To
//! change that is to rename the file, and renaming fails if the file has another name by now: then the step
//! is made again, on what is there now. No process can die in the middle of a step, so there is nothing to
//! repair.
//!
//! # What it does not do
//!
//! * Processes of one machine only: over a network, `rename` may have been done though it says that it
//!   failed.
//! * If the system's clock is set, leases become longer or shorter.
//! * A file system that hangs, hangs the caller. A store that can be slow belongs behind a time limit, and
//!   off the caller's thread.
//! * The directory of a name stays when the lock is free, and a name of more than 127 bytes is more than a
//!   file system takes.

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

/// Locks kept in a directory.
#[derive(Clone)]
pub(crate) struct FileLocks {
    files: Files,
    registry: Registry<Watch>,
    runtime: ThreadRuntime,
}

impl FileLocks {
    /// `directory` is there, and nothing else is in it.
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

/// Which lease is on a lock, and until when, counted from 1970.
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

/// How the id is written: Windows takes no colon in a file's name.
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

/// `None`: this is none of our files.
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
    /// The name of the lock's directory, in hexadecimal digits: a lock's name may have slashes.
    fn directory_name(name: &LockName) -> String {
        name.as_str().bytes().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Changes the holder of a lock, in one step: `change` is given the time and the lease that is not over,
    /// and says what shall be there instead, and the answer. It is called again if another process was
    /// quicker.
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
                // Another process has changed it: look again.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The name of the one file.
    fn current(&self, place: &Path) -> io::Result<String> {
        loop {
            match fs::read_dir(place).map(|mut files| files.next()) {
                Ok(Some(file)) => return Ok(file?.file_name().to_string_lossy().into_owned()),
                // It was renamed while we listed, and so missed: look again.
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => self.create(place)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the directory of a lock, with its file in it from the beginning: it is made elsewhere, and then
    /// renamed. That fails if another process was quicker, as no directory takes the place of one that is not
    /// empty.
    fn create(&self, place: &Path) -> io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Ordering: Relaxed, only the number's being used once matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let fresh: PathBuf = self.0.join(format!("new-{}-{number}", std::process::id()));
        match fs::create_dir(&fresh) {
            // Left by a process that died here and had the same number. We are asked again, and take the next
            // one.
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

/// How often a waiter looks whether the lock is free.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Brings a message for as long as a lock is free. That is more than needed: a needless message costs a look.
pub(crate) struct Watch {
    files: Files,
    runtime: ThreadRuntime,
    /// Dropping what is under a channel ends its task.
    pub(crate) watched: Mutex<HashMap<Arc<str>, Arc<()>>>,
}

impl Transport for Watch {
    fn subscribe(&self, channel: &Arc<str>, inbox: Inbox) {
        let wanted = Arc::new(());
        let still_wanted = Arc::downgrade(&wanted);
        self.watched.lock().unwrap().insert(Arc::clone(channel), wanted);
        // What is free from now on will be seen. With a server, this is said when the server has confirmed.
        inbox.ready();
        let (files, runtime, channel) = (self.files.clone(), self.runtime.clone(), Arc::clone(channel));
        self.runtime.spawn(async move {
            while still_wanted.strong_count() > 0 {
                runtime.sleep_until(runtime.now() + LOOK_AGAIN).await;
                // An error is for the waiters: they look, and meet it.
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
            // That it is free is what its watchers are waiting for. With a server, it is published in this
            // very step.
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
