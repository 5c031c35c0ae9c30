//! A lock backend over a directory of files: where to start when the locks are to be kept in a store of your own.
//!
//! A backend is four things. For another store, replace them one by one and keep the suite green (`tests/own_backend.rs` runs this
//! file by the suite that every backend has to pass):
//!
//! | what | here |
//! |---|---|
//! | a step that is atomic, whoever else is at it | [`Files::step`]: renaming a file, which is a compare-and-swap |
//! | a lease that ends by itself | the time in the file's name, by the system's clock |
//! | messages that wake who waits | [`Watch`]: looks every few milliseconds; take the store's notifications if it has any |
//! | a clock, timers, background work | the library's own [`ThreadRuntime`]; take your executor if you have one |
//!
//! # How a lock is kept
//!
//! A name has a directory, and in it is exactly one file, empty, whose *name* says who has the lock: `free.<token>`, or
//! `<holds>.<token>.<seconds>.<nanoseconds>.<owner>`, where the time is the lease's end. To change that is to rename the file, and
//! renaming fails if the file has another name by now: then the step is made again, on what is there now. No process can die in
//! the middle of a step, so there is nothing to repair.
//!
//! # What it does not do
//!
//! * Processes of one machine only: over a network, `rename` may have been done though it says that it failed.
//! * If the system's clock is set, leases become longer or shorter.
//! * A file system that hangs, hangs the caller. A store that can be slow belongs behind a time limit, and off the caller's thread.
//! * The directory of a name stays when the lock is free, and a name of more than 127 bytes is more than a file system takes.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use latchwork::local::ThreadRuntime;
use latchwork::{
    Backend, HoldKey, Inbox, LockName, Message, Owner, Registry, Released, Runtime, Transport, Tried,
};

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
}

// === The atomic step ===

/// Who has a lock, and until when, counted from 1970.
#[derive(Clone, PartialEq)]
struct State {
    /// The last fencing token.
    token: u64,
    hold: Option<Hold>,
}

#[derive(Clone, PartialEq)]
struct Hold {
    count: u64,
    until: Duration,
    owner: String,
}

/// How the owner is written: Windows takes no colon in a file's name.
fn text(owner: &Owner) -> String {
    owner.as_str().replace(':', "_")
}

fn to_file_name(State { token, hold }: &State) -> String {
    match hold {
        None => format!("free.{token}"),
        Some(Hold { count, until, owner }) => {
            format!("{count}.{token}.{}.{}.{owner}", until.as_secs(), until.subsec_nanos())
        }
    }
}

/// `None`: this is none of our files.
fn from_file_name(name: &str) -> Option<State> {
    let (count, rest) = name.split_once('.')?;
    if count == "free" {
        return Some(State { token: rest.parse().ok()?, hold: None });
    }
    let mut parts = rest.splitn(4, '.');
    let token = parts.next()?.parse().ok()?;
    let until = Duration::new(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let hold = Hold { count: count.parse().ok()?, until, owner: parts.next()?.to_owned() };
    Some(State { token, hold: Some(hold) })
}

#[derive(Clone)]
struct Files(Arc<Path>);

impl Files {
    /// The name of the lock's directory, in hexadecimal digits: a lock's name may have slashes.
    fn directory_name(name: &LockName) -> String {
        name.as_str().bytes().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Changes who has a lock, in one step: `change` is given the time and the hold whose lease is not over, and says what shall
    /// be there instead, and the answer. It is asked again if somebody else was quicker.
    fn step<T>(&self, directory: &str, change: impl Fn(Duration, State) -> (State, T)) -> io::Result<T> {
        let place = self.0.join(directory);
        loop {
            let file = self.current(&place)?;
            let mut found = from_file_name(&file).ok_or_else(|| {
                io::Error::new(ErrorKind::InvalidData, format!("not a lock's file: {file}"))
            })?;
            let now = SystemTime::UNIX_EPOCH.elapsed().map_err(io::Error::other)?;
            found.hold = found.hold.filter(|hold| hold.until > now);
            let (next, answer) = change(now, found.clone());
            if next == found {
                return Ok(answer);
            }
            match fs::rename(place.join(&file), place.join(to_file_name(&next))) {
                Ok(()) => return Ok(answer),
                // Somebody else has changed it: look again.
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

    /// Makes the directory of a lock, with its file in it from the beginning: it is made elsewhere, and then renamed. That fails if
    /// somebody else was quicker, as no directory takes the place of one that is not empty.
    fn create(&self, place: &Path) -> io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Ordering: Relaxed, only the number's being used once matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let fresh: PathBuf = self.0.join(format!("new-{}-{number}", std::process::id()));
        match fs::create_dir(&fresh) {
            // Left by a process that died here and had the same number. We are asked again, and take the next one.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
            made => made?,
        }
        File::create_new(fresh.join(to_file_name(&State { token: 0, hold: None })))?;
        match fs::rename(&fresh, place) {
            Err(_) if place.is_dir() => fs::remove_dir_all(&fresh),
            made => made,
        }
    }
}

// === The messages ===

/// How often somebody who waits looks whether the lock is free.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Brings a message for as long as a lock is free. That is more than needed: a message that nobody needs costs a look.
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
                // An error is for those who wait: they look, and meet it.
                if files.step(&channel, |_, state| (state.clone(), state.hold.is_none())).unwrap_or(true) {
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

    fn channel(&self, name: &LockName) -> String {
        Files::directory_name(name)
    }

    async fn try_acquire(
        &self,
        name: &LockName,
        owner: &Owner,
        holds: u64,
        lease: Duration,
        fenced: bool,
    ) -> io::Result<Tried> {
        let owner = text(owner);
        self.files.step(&self.channel(name), |now, state| {
            // An inner hold with a short lease must not cut the outer one short; and a command that is sent again makes no new token.
            let (earliest, is_new) = match &state.hold {
                None if holds > 1 => return (state, Tried::Lost),
                None => (Duration::ZERO, true),
                Some(hold) if hold.owner == owner => (hold.until, hold.count != holds),
                Some(hold) => {
                    let left = hold.until - now;
                    return (state, Tried::Held { left });
                }
            };
            let token = state.token + u64::from(fenced && is_new);
            let until = earliest.max(now.saturating_add(lease));
            let hold = Some(Hold { count: holds, until, owner: owner.clone() });
            (State { token, hold }, Tried::Acquired { token: fenced.then_some(token) })
        })
    }

    async fn release(&self, name: &LockName, owner: &Owner, left: u64) -> io::Result<Released> {
        let owner = text(owner);
        self.files.step(&self.channel(name), |_, state| match state.hold {
            Some(hold) if hold.owner == owner && left > 0 => {
                (State { hold: Some(Hold { count: left, ..hold }), ..state }, Released::StillHeld)
            }
            // That it is free is what those who watch are waiting for. With a server, it is published in this very step.
            Some(hold) if hold.owner == owner => (State { hold: None, ..state }, Released::Free),
            hold => (State { hold, ..state }, Released::NotHeld),
        })
    }

    async fn force_release(&self, name: &LockName) -> io::Result<bool> {
        self.files.step(&self.channel(name), |_, state| (State { hold: None, ..state }, state.hold.is_some()))
    }

    async fn renew(&self, holds: &[HoldKey], lease: Duration) -> io::Result<Vec<bool>> {
        let renew_one = |key: &HoldKey| {
            let owner = text(&key.owner);
            self.files.step(&self.channel(&key.name), |now, state| match state.hold {
                Some(hold) if hold.owner == owner => {
                    let until = hold.until.max(now.saturating_add(lease));
                    (State { hold: Some(Hold { until, ..hold }), ..state }, true)
                }
                hold => (State { hold, ..state }, false),
            })
        };
        holds.iter().map(renew_one).collect()
    }

    async fn hold_count(&self, name: &LockName, owner: &Owner) -> io::Result<u64> {
        let owner = text(owner);
        self.files.step(&self.channel(name), |_, state| {
            let count = state.hold.as_ref().filter(|hold| hold.owner == owner).map_or(0, |hold| hold.count);
            (state, count)
        })
    }

    async fn remaining(&self, name: &LockName) -> io::Result<Option<Duration>> {
        self.files.step(&self.channel(name), |now, state| {
            let left = state.hold.as_ref().map(|hold| hold.until - now);
            (state, left)
        })
    }
}
