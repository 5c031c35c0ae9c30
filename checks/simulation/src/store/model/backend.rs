//! [`ModelBackend`]: the model as the client of one process has it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use latchwork::backend::{
    AcquireOutcome, AcquireRequest, Backend, Channels, Failure, LeaseKey, LockName, Mode, NextWaiter,
    Registry, ReleaseOutcome,
};
use latchwork::{Holder, LeaseId, LockKind};

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
fn release(next: Option<&NextWaiter>) -> Role {
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
        let lease = (self.process.index(), id.number());
        self.shared.data().contract.attempts(lease);
        let answered = self.send(kind, name, what, attempt(id), step).await;
        self.settle(lease, &answered);
        match answered?.0.map_err(Failed::other_kind)? {
            AcquireOutcome::Held { left } => Ok(AcquireOutcome::Held { left: self.shortened(left) }),
            acquired => Ok(acquired),
        }
    }

    /// What was not answered may come late.
    fn settle<T>(&self, lease: (usize, u64), answered: &Result<T, Failed>) {
        if !matches!(answered, Err(Failed(Failure::Indeterminate))) {
            self.shared.data().contract.settles(lease);
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
        let (released, receivers) =
            self.send(LockKind::Plain, name, called(what, name, id), role, step).await?;
        Ok(if released { ReleaseOutcome::Released { receivers } } else { ReleaseOutcome::NotHeld })
    }

    async fn free_fair(
        &self,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
        role: Role,
    ) -> Result<ReleaseOutcome, Failed> {
        let what = releasing("release fair", name, id, next, role);
        let (id, next) = (id.clone(), next.cloned());
        let step = move |step: &mut Step<'_>| step.release_fair(&id, next.as_ref());
        Ok(self.send(LockKind::Fair, name, what, role, step).await?.0)
    }

    async fn free_write(
        &self,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
        role: Role,
    ) -> Result<ReleaseOutcome, Failed> {
        let what = releasing("release write", name, id, next, role);
        let (id, next) = (id.clone(), next.cloned());
        let step = move |step: &mut Step<'_>| match step.begin_read_write() {
            Ok(()) => step.release_write(&id, next.as_ref()),
            Err(_) => {
                step.name.writers.remove(&id);
                ReleaseOutcome::NotHeld
            }
        };
        Ok(self.send(LockKind::ReadWrite, name, what, role, step).await?.0)
    }

    async fn free_read(
        &self,
        name: &LockName,
        id: &LeaseId,
        what: &str,
        role: Role,
    ) -> Result<ReleaseOutcome, Failed> {
        let lease = id.clone();
        let step = move |step: &mut Step<'_>| match step.begin_read_write() {
            Ok(()) => step.release_read(&lease),
            Err(_) => {
                step.name.waiting_readers.remove(&lease);
                false
            }
        };
        let (did_read, _) = self.send(LockKind::ReadWrite, name, called(what, name, id), role, step).await?;
        Ok(if did_read { ReleaseOutcome::Released { receivers: 0 } } else { ReleaseOutcome::NotHeld })
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
        self.shared.command(&self.process, what, Role { renews: true, ..Role::default() }, run).await
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

fn releasing(what: &str, name: &LockName, id: &LeaseId, next: Option<&NextWaiter>, role: Role) -> String {
    let what = if role.behind.is_some() { format!("{what}, to roll back") } else { what.to_owned() };
    let next = next.map(|next| format!(" for #{} by {:?}", next.id.number(), next.lease));
    called(&what, name, id) + &next.unwrap_or_default()
}

/// The words for an attempt.
fn asking(mode: Mode, name: &LockName, request: &AcquireRequest) -> String {
    let AcquireRequest { id, lease, tokens, position, .. } = request;
    let tokens = if *tokens > 0 { format!(", {tokens} tokens") } else { String::new() };
    let waits = position.map(|it| format!(", waited {:?}, kept {:?}", it.waited, it.kept));
    let what = called(&format!("acquire {mode}"), name, id);
    format!("{what} for {lease:?}{tokens}{}", waits.unwrap_or_default())
}

/// The kind of lock that this is a mode of.
fn kind(mode: Mode) -> LockKind {
    match mode {
        Mode::Plain => LockKind::Plain,
        Mode::Fair => LockKind::Fair,
        _ => LockKind::ReadWrite,
    }
}

impl ModelBackend {
    async fn free(
        &self,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
        role: Role,
    ) -> Result<ReleaseOutcome, Failed> {
        let what = if role.behind.is_some() { "roll back" } else { "release" };
        let index = self.process.index();
        let named = next.map(|next| (index, next.id.number()));
        {
            let contract = &mut self.shared.data().contract;
            contract.releases((index, id.number()), role.behind.is_some());
            named.into_iter().for_each(|named| contract.attempts(named));
            if role.behind.is_none() {
                contract.tells(index, mode, name.as_str(), None);
            }
        }
        let freed = match mode {
            Mode::Plain => self.free_plain(name, id, what, role).await,
            Mode::Fair => self.free_fair(name, id, next, role).await,
            Mode::Write => self.free_write(name, id, next, role).await,
            _ => self.free_read(name, id, &format!("{what} read"), role).await,
        };
        named.into_iter().for_each(|named| self.settle(named, &freed));
        freed
    }
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

    fn supports(&self, _mode: Mode) -> bool {
        true
    }

    fn channels(&self, mode: Mode, name: &LockName, client: &str) -> Channels {
        let (name, habits) = (name.as_str(), &self.shared.habits);
        match mode {
            Mode::Plain => Channels::one(channels::plain(name)),
            Mode::Fair => {
                let common = habits.has_foreign_channel.then(|| channels::foreign(name));
                Channels { own: channels::fair_grants(name, client), common }
            }
            Mode::Write => {
                let common = Some(channels::read_write(name));
                Channels { own: channels::write_grants(name, client), common }
            }
            _ => Channels::one(channels::read_write(name)),
        }
    }

    fn grants_suffice(&self) -> bool {
        self.shared.habits.grants_suffice
    }

    fn failure(&self, error: &Failed) -> Failure {
        error.0
    }

    fn renewal_group(&self, name: &LockName) -> u64 {
        let mut hash = DefaultHasher::new();
        name.as_str().hash(&mut hash);
        hash.finish() % self.shared.habits.renewal_groups
    }

    async fn acquire(
        &self,
        mode: Mode,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, Failed> {
        let (what, asks) = (asking(mode, name, request), request.clone());
        let step = move |step: &mut Step<'_>| {
            let AcquireRequest { id, lease, tokens, position, .. } = &asks;
            match mode {
                Mode::Plain => step.try_acquire(id, *lease, *tokens),
                Mode::Fair => step.try_acquire_fair(id, *lease, *tokens, *position),
                Mode::Write => {
                    step.begin_read_write()?;
                    Ok(acquired(step.try_write(id, *lease, *tokens, *position)))
                }
                _ => {
                    step.begin_read_write()?;
                    Ok(acquired(step.try_read(&asks)))
                }
            }
        };
        let outcome = self.attempt(kind(mode), name, &request.id, what, step).await?;
        let held = matches!(outcome, AcquireOutcome::Held { .. }).then(|| self.shared.world.now());
        self.shared.data().contract.tells(self.process.index(), mode, name.as_str(), held);
        Ok(outcome)
    }

    async fn release(
        &self,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
    ) -> Result<ReleaseOutcome, Failed> {
        self.free(mode, name, id, next, release(next)).await
    }

    async fn roll_back(&self, mode: Mode, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, Failed> {
        self.free(mode, name, id, None, roll_back(id)).await
    }

    async fn renew(&self, mode: Mode, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, Failed> {
        let step: fn(&mut Step<'_>, &LeaseId, Duration) -> bool = match mode {
            Mode::Plain | Mode::Fair => |step, id, lease| step.renew(id, lease),
            Mode::Write => |step, id, lease| step.renew_write(id, lease),
            _ => |step, id, lease| step.renew_read(id, lease),
        };
        for lease in leases {
            self.shared.data().contract.tells(self.process.index(), mode, lease.name.as_str(), None);
        }
        self.renew_each(kind(mode), leases, lease, step).await
    }

    async fn force_release(&self, mode: Mode, name: &LockName) -> Result<bool, Failed> {
        let step = move |step: &mut Step<'_>| match mode {
            Mode::Plain => step.force_release(),
            Mode::Fair => step.force_release_fair(),
            _ => {
                step.begin_read_write()?;
                Ok(step.force_release_read_write())
            }
        };
        self.force(kind(mode), name, step).await
    }

    async fn holders(&self, mode: Mode, name: &LockName) -> Result<Vec<Holder>, Failed> {
        let what = format!("holders of {:?}", name.as_str());
        let name = name.as_str().to_owned();
        let run = move |shared: &Arc<Shared>| {
            shared.look(&name, |name, now| match (kind(mode), name.held_as(now)) {
                (LockKind::ReadWrite, Some(LockKind::ReadWrite)) => Ok(name.holders(mode, now)),
                (LockKind::ReadWrite, Some(other)) => Err(other),
                (LockKind::ReadWrite, None) => Ok(Vec::new()),
                // It is held, as whatever.
                _ => Ok(name
                    .held_until(now)
                    .map(|until| {
                        let id = name.held(now).filter(|_| name.kind != LockKind::ReadWrite);
                        Holder::new(id.map(|it| it.id.clone()), left(until, now))
                    })
                    .into_iter()
                    .collect()),
            })
        };
        self.shared.command(&self.process, what, Role::default(), run).await?.map_err(Failed::other_kind)
    }
}
