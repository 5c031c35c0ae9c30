//! [`ModelBackend`]: the model as the client of one process has it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use latchwork::{
    AcquireOutcome, Backend, Failure, FairBackend, FairReleaseOutcome, Holder, LeaseId, LeaseKey, LockKind,
    LockName, Moment, Next, Position, ReadRequest, ReadWriteBackend, ReadWriteHolders, Registry,
    ReleaseOutcome,
};

use super::messages::ModelTransport;
use super::name::{Step, left};
use super::network::{Failed, Role};
use super::{Shared, channels};
use crate::world::Process;

/// The store, seen from one process.
pub(crate) struct ModelBackend {
    shared: Arc<Shared>,
    process: Process,
    registry: Registry<ModelTransport>,
}

/// What a command is called in the history.
fn called(what: &str, name: &LockName, id: &LeaseId) -> String {
    format!("{what} {:?} #{}", name.as_str(), id.number())
}

fn attempt(id: &LeaseId) -> Role {
    Role { attempts: Some(id.number()), ..Role::default() }
}

fn roll_back(id: &LeaseId) -> Role {
    Role { behind: Some(id.number()), ..Role::default() }
}

/// A release that names a waiter is an attempt by that one.
fn release(next: Option<&Next>) -> Role {
    Role { attempts: next.map(|next| next.id.number()), ..Role::default() }
}

fn acquired(tried: Result<u64, Duration>) -> AcquireOutcome {
    match tried {
        Ok(last_token) => AcquireOutcome::Acquired { last_token },
        Err(left) => AcquireOutcome::Held { left },
    }
}

impl ModelBackend {
    pub(super) fn new(shared: &Arc<Shared>, process: &Process) -> Self {
        let registry = Registry::new(ModelTransport::new(shared, process));
        Self { shared: Arc::clone(shared), process: process.clone(), registry }
    }

    /// Sends a command on a name. The number of subscribers that heard of it comes with the answer.
    async fn send<T: std::fmt::Debug + Send + 'static>(
        &self,
        kind: LockKind,
        name: &LockName,
        what: String,
        role: Role,
        step: impl Fn(&mut Step<'_>) -> T + Send + 'static,
    ) -> Result<(T, usize), Failed> {
        let (from, name) = (self.process.index(), name.as_str().to_owned());
        let run = move |shared: &Arc<Shared>| {
            let done = shared.step(from, kind, &name, &step);
            shared.watch(kind, &name);
            (done.answer, done.heard)
        };
        self.shared.command(&self.process, what, role, run).await
    }

    /// An attempt. How long a lease of another lasts may be said to be less than it is.
    async fn attempt(
        &self,
        kind: LockKind,
        name: &LockName,
        id: &LeaseId,
        what: String,
        step: impl Fn(&mut Step<'_>) -> Result<AcquireOutcome, LockKind> + Send + 'static,
    ) -> Result<AcquireOutcome, Failed> {
        let (answer, _) = self.send(kind, name, what, attempt(id), step).await?;
        match answer.map_err(Failed::other_kind)? {
            AcquireOutcome::Held { left } => Ok(AcquireOutcome::Held { left: self.shortened(left) }),
            acquired => Ok(acquired),
        }
    }

    fn shortened(&self, left: Duration) -> Duration {
        let half = left / 2;
        let halves = self.shared.world.chance(|chance| chance.u8(..16) == 0);
        if halves && half >= Duration::from_millis(1) && left < Duration::MAX { half } else { left }
    }

    async fn free_plain(
        &self,
        name: &LockName,
        id: &LeaseId,
        what: &str,
        role: Role,
    ) -> Result<ReleaseOutcome, Failed> {
        let lease = id.clone();
        let step = move |step: &mut Step<'_>| step.release(&lease);
        let (released, heard) = self.send(LockKind::Plain, name, called(what, name, id), role, step).await?;
        Ok(if released { ReleaseOutcome::Released { heard } } else { ReleaseOutcome::NotHeld })
    }

    async fn free_fair(
        &self,
        name: &LockName,
        id: &LeaseId,
        next: Option<&Next>,
        role: Role,
    ) -> Result<FairReleaseOutcome, Failed> {
        let what = releasing("release fair", name, id, next, role);
        let (id, next) = (id.clone(), next.cloned());
        let step = move |step: &mut Step<'_>| step.release_fair(&id, next.as_ref());
        Ok(self.send(LockKind::Fair, name, what, role, step).await?.0)
    }

    async fn free_write(
        &self,
        name: &LockName,
        id: &LeaseId,
        next: Option<&Next>,
        role: Role,
    ) -> Result<FairReleaseOutcome, Failed> {
        let what = releasing("release write", name, id, next, role);
        let (id, next) = (id.clone(), next.cloned());
        let step = move |step: &mut Step<'_>| match step.begin_read_write() {
            Ok(()) => step.release_write(&id, next.as_ref()),
            Err(_) => {
                step.name.writers.remove(&id);
                FairReleaseOutcome::NotHeld
            }
        };
        Ok(self.send(LockKind::ReadWrite, name, what, role, step).await?.0)
    }

    async fn free_read(&self, name: &LockName, id: &LeaseId, what: &str, role: Role) -> Result<bool, Failed> {
        let lease = id.clone();
        let step = move |step: &mut Step<'_>| match step.begin_read_write() {
            Ok(()) => step.release_read(&lease),
            Err(_) => {
                step.name.waiting_readers.remove(&lease);
                false
            }
        };
        Ok(self.send(LockKind::ReadWrite, name, called(what, name, id), role, step).await?.0)
    }

    async fn renew_each(
        &self,
        kind: LockKind,
        leases: &[LeaseKey],
        lease: Duration,
        step: fn(&mut Step<'_>, &LeaseId, Duration) -> bool,
    ) -> Result<Vec<bool>, Failed> {
        let listed = leases.iter().map(|key| format!("{:?} #{}", key.name.as_str(), key.id.number()));
        let what = format!("renew {} for {lease:?}", listed.collect::<Vec<_>>().join(", "));
        let (from, leases) = (self.process.index(), leases.to_vec());
        let run = move |shared: &Arc<Shared>| {
            let each = leases
                .iter()
                .map(|key| shared.step(from, kind, key.name.as_str(), |it| step(it, &key.id, lease)).answer);
            each.collect()
        };
        self.shared.command(&self.process, what, Role::default(), run).await
    }

    async fn force(
        &self,
        kind: LockKind,
        name: &LockName,
        step: impl Fn(&mut Step<'_>) -> Result<bool, LockKind> + Send + 'static,
    ) -> Result<bool, Failed> {
        let what = format!("force {:?} free", name.as_str());
        self.send(kind, name, what, Role::default(), step).await?.0.map_err(Failed::other_kind)
    }
}

fn releasing(what: &str, name: &LockName, id: &LeaseId, next: Option<&Next>, role: Role) -> String {
    let what = if role.behind.is_some() { format!("{what}, to roll back") } else { what.to_owned() };
    let next = next.map(|next| format!(" for #{} by {:?}", next.id.number(), next.lease));
    called(&what, name, id) + &next.unwrap_or_default()
}

/// The words for an attempt.
fn asking(
    what: &str,
    name: &LockName,
    id: &LeaseId,
    lease: Duration,
    tokens: u64,
    position: Option<Position>,
) -> String {
    let tokens = if tokens > 0 { format!(", {tokens} tokens") } else { String::new() };
    let waits = position.map(|it| format!(", waited {:?}, kept {:?}", it.waited, it.kept));
    format!("{} for {lease:?}{tokens}{}", called(what, name, id), waits.unwrap_or_default())
}

impl Backend for ModelBackend {
    type Error = Failed;
    type Transport = ModelTransport;
    type Runtime = Process;

    fn registry(&self) -> &Registry<ModelTransport> {
        &self.registry
    }

    fn runtime(&self) -> &Process {
        &self.process
    }

    fn channel(&self, name: &LockName) -> String {
        channels::plain(name.as_str())
    }

    fn failure(&self, error: &Failed) -> Failure {
        error.0
    }

    fn renewal_group(&self, name: &LockName) -> u64 {
        let mut hash = DefaultHasher::new();
        name.as_str().hash(&mut hash);
        hash.finish() % self.shared.habits.renewal_groups
    }

    async fn try_acquire(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        _now: Moment,
    ) -> Result<AcquireOutcome, Failed> {
        let what = asking("acquire", name, id, lease, tokens, None);
        let asks = id.clone();
        let step = move |step: &mut Step<'_>| step.try_acquire(&asks, lease, tokens);
        self.attempt(LockKind::Plain, name, id, what, step).await
    }

    async fn release(&self, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, Failed> {
        self.free_plain(name, id, "release", Role::default()).await
    }

    async fn roll_back(&self, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, Failed> {
        self.free_plain(name, id, "roll back", roll_back(id)).await
    }

    async fn renew(&self, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, Failed> {
        self.renew_each(LockKind::Plain, leases, lease, |step, id, lease| step.renew(id, lease)).await
    }

    async fn force_release(&self, name: &LockName) -> Result<bool, Failed> {
        self.force(LockKind::Plain, name, |step: &mut Step<'_>| step.force_release()).await
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>, Failed> {
        let what = format!("holder of {:?}", name.as_str());
        let name = name.as_str().to_owned();
        let run = move |shared: &Arc<Shared>| {
            shared.look(&name, |name, now| {
                let left = left(name.held_until(now)?, now);
                let id = name.held(now).filter(|_| name.kind != LockKind::ReadWrite).map(|it| it.id.clone());
                Some(Holder { id, left })
            })
        };
        let found = self.shared.command(&self.process, what, Role::default(), run);
        found.await
    }
}

impl FairBackend for ModelBackend {
    fn grant_channel(&self, name: &LockName, client: &str) -> String {
        channels::fair_grants(name.as_str(), client)
    }

    fn foreign_channel(&self, name: &LockName) -> Option<String> {
        self.shared.habits.has_foreign_channel.then(|| channels::foreign(name.as_str()))
    }

    fn grants_suffice(&self) -> bool {
        self.shared.habits.grants_suffice
    }

    async fn try_acquire_fair(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        position: Option<Position>,
        _now: Moment,
    ) -> Result<AcquireOutcome, Failed> {
        let what = asking("acquire fair", name, id, lease, tokens, position);
        let asks = id.clone();
        let step = move |step: &mut Step<'_>| step.try_acquire_fair(&asks, lease, tokens, position);
        self.attempt(LockKind::Fair, name, id, what, step).await
    }

    async fn release_fair(
        &self,
        name: &LockName,
        id: &LeaseId,
        next: Option<&Next>,
    ) -> Result<FairReleaseOutcome, Failed> {
        self.free_fair(name, id, next, release(next)).await
    }

    async fn roll_back_fair(&self, name: &LockName, id: &LeaseId) -> Result<FairReleaseOutcome, Failed> {
        self.free_fair(name, id, None, roll_back(id)).await
    }

    async fn force_release_fair(&self, name: &LockName) -> Result<bool, Failed> {
        self.force(LockKind::Fair, name, |step: &mut Step<'_>| step.force_release_fair()).await
    }
}

impl ReadWriteBackend for ModelBackend {
    fn read_write_channel(&self, name: &LockName) -> String {
        channels::read_write(name.as_str())
    }

    fn write_grant_channel(&self, name: &LockName, client: &str) -> String {
        channels::write_grants(name.as_str(), client)
    }

    fn write_grants_suffice(&self) -> bool {
        self.shared.habits.grants_suffice
    }

    async fn try_write(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        position: Option<Position>,
        _now: Moment,
    ) -> Result<AcquireOutcome, Failed> {
        let what = asking("write", name, id, lease, tokens, position);
        let asks = id.clone();
        let step = move |step: &mut Step<'_>| {
            step.begin_read_write()?;
            Ok(acquired(step.try_write(&asks, lease, tokens, position)))
        };
        self.attempt(LockKind::ReadWrite, name, id, what, step).await
    }

    async fn release_write(
        &self,
        name: &LockName,
        id: &LeaseId,
        next: Option<&Next>,
    ) -> Result<FairReleaseOutcome, Failed> {
        self.free_write(name, id, next, release(next)).await
    }

    async fn roll_back_write(&self, name: &LockName, id: &LeaseId) -> Result<FairReleaseOutcome, Failed> {
        self.free_write(name, id, None, roll_back(id)).await
    }

    async fn try_read(
        &self,
        name: &LockName,
        id: &LeaseId,
        read: &ReadRequest<'_>,
        _now: Moment,
    ) -> Result<AcquireOutcome, Failed> {
        let what = asking("read", name, id, read.lease, u64::from(read.fenced), read.position);
        let (asks, under) = (id.clone(), read.under.cloned());
        let ReadRequest { lease, fenced, position, .. } = *read;
        let step = move |step: &mut Step<'_>| {
            step.begin_read_write()?;
            let read = ReadRequest { lease, fenced, position, under: under.as_ref() };
            Ok(acquired(step.try_read(&asks, &read)))
        };
        self.attempt(LockKind::ReadWrite, name, id, what, step).await
    }

    async fn release_read(&self, name: &LockName, id: &LeaseId) -> Result<bool, Failed> {
        self.free_read(name, id, "release read", Role::default()).await
    }

    async fn roll_back_read(&self, name: &LockName, id: &LeaseId) -> Result<bool, Failed> {
        self.free_read(name, id, "roll back read", roll_back(id)).await
    }

    async fn renew_writes(&self, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, Failed> {
        let step = |step: &mut Step<'_>, id: &LeaseId, lease| step.renew_write(id, lease);
        self.renew_each(LockKind::ReadWrite, leases, lease, step).await
    }

    async fn renew_reads(&self, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, Failed> {
        let step = |step: &mut Step<'_>, id: &LeaseId, lease| step.renew_read(id, lease);
        self.renew_each(LockKind::ReadWrite, leases, lease, step).await
    }

    async fn force_release_read_write(&self, name: &LockName) -> Result<bool, Failed> {
        let step = |step: &mut Step<'_>| {
            step.begin_read_write()?;
            Ok(step.force_release_read_write())
        };
        self.force(LockKind::ReadWrite, name, step).await
    }

    async fn read_write_holders(&self, name: &LockName) -> Result<ReadWriteHolders, Failed> {
        let what = format!("holders of {:?}", name.as_str());
        let name = name.as_str().to_owned();
        let run = move |shared: &Arc<Shared>| {
            shared.look(&name, |name, now| match name.held_as(now) {
                Some(other) if other != LockKind::ReadWrite => Err(other),
                Some(_) => Ok(name.holders(now)),
                None => Ok(ReadWriteHolders::default()),
            })
        };
        self.shared.command(&self.process, what, Role::default(), run).await?.map_err(Failed::other_kind)
    }
}
