//! [`ModelBackend`]: the backend of one process's client of the model.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use latchwork::backend::{
    AcquireOutcome, AcquireRequest, Backend, Channels, Failure, LeaseKey, LockName, Mode, NextWaiter,
    Registry, ReleaseOutcome,
};
use latchwork::{Holder, LeaseId, LockKind};

use super::messages::ModelTransport;
use super::network::{Failed, Role};
use super::state::{Step, kind};
use super::{Shared, channels};
use crate::world::Process;

#[derive(Clone)]
pub(crate) struct ModelBackend {
    shared: Arc<Shared>,
    process: Process,
    registry: Registry<ModelTransport>,
}

fn called(what: &str, name: &LockName, id: &LeaseId) -> String {
    format!("{what} {:?} #{}", name.as_str(), id.number())
}

fn attempt(id: &LeaseId) -> Role {
    Role { attempts: Some(id.clone()), ..Role::default() }
}

fn roll_back(id: &LeaseId) -> Role {
    Role { behind: Some(id.clone()), ..Role::default() }
}

/// A release that names the next waiter is an attempt by that waiter.
fn release(next: Option<&NextWaiter>) -> Role {
    Role { attempts: next.map(|next| next.id.clone()), ..Role::default() }
}

impl ModelBackend {
    pub(super) fn new(shared: &Arc<Shared>, process: &Process) -> Self {
        let registry = Registry::new(ModelTransport::new(shared, process));
        Self { shared: Arc::clone(shared), process: process.clone(), registry }
    }

    /// Sends a command on a name. Returns the answer, and the number of subscribers reached.
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

    /// Sends an attempt. The answer may understate the rest of another holder's lease.
    async fn attempt(
        &self,
        kind: LockKind,
        name: &LockName,
        id: &LeaseId,
        what: String,
        step: impl Fn(&mut Step<'_>) -> Result<AcquireOutcome, LockKind> + Send + 'static,
    ) -> Result<AcquireOutcome, Failed> {
        self.shared.data().contract.attempts(id);
        let answered = self.send(kind, name, what, attempt(id), step).await;
        self.settle(id, &answered);
        match answered?.0.map_err(Failed::other_kind)? {
            AcquireOutcome::Held { left } => Ok(AcquireOutcome::Held { left: self.shortened(left) }),
            acquired => Ok(acquired),
        }
    }

    /// Notes the answer to an attempt; an attempt of unknown effect may still run late.
    fn settle<T>(&self, lease: &LeaseId, answered: &Result<T, Failed>) {
        if !matches!(answered, Err(Failed(Failure::Indeterminate))) {
            self.shared.data().contract.settles(lease);
        }
    }

    fn shortened(&self, left: Duration) -> Duration {
        let half = left / 2;
        let halves = self.shared.world.chance(|chance| chance.u8(..16) == 0);
        if halves && half >= Duration::from_millis(1) && left < Duration::MAX { half } else { left }
    }
}

fn releasing(what: &str, name: &LockName, id: &LeaseId, next: Option<&NextWaiter>) -> String {
    let next = next.map(|next| format!(" for #{} by {:?}", next.id.number(), next.lease));
    called(what, name, id) + &next.unwrap_or_default()
}

fn asking(mode: Mode, name: &LockName, request: &AcquireRequest) -> String {
    let AcquireRequest { id, lease, tokens, position, permits, .. } = request;
    let tokens = if *tokens > 0 { format!(", {tokens} tokens") } else { String::new() };
    let waits = position.map(|it| format!(", waited {:?}, kept {:?}", it.waited, it.kept));
    let permits = permits.map_or(String::new(), |it| format!(" {} of {}", it.count, it.capacity));
    let what = called(&format!("acquire {mode}{permits}"), name, id);
    format!("{what} for {lease:?}{tokens}{}", waits.unwrap_or_default())
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
        {
            let contract = &mut self.shared.data().contract;
            contract.releases(id, role.behind.is_some());
            next.into_iter().for_each(|next| contract.attempts(&next.id));
            if role.behind.is_none() {
                contract.tells(&id.client_id(), mode, name.as_str(), None);
            }
        }
        let what = releasing(&format!("{what} {mode}"), name, id, next);
        let (lease, waiter) = (id.clone(), next.cloned());
        let step = move |step: &mut Step<'_>| step.release(mode, &lease, waiter.as_ref());
        let freed = self.send(kind(mode), name, what, role, step).await;
        next.into_iter().for_each(|next| self.settle(&next.id, &freed));
        Ok(match freed? {
            (ReleaseOutcome::Released { .. }, receivers) if mode == Mode::Plain => {
                ReleaseOutcome::Released { receivers }
            }
            (freed, _) => freed,
        })
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
            Mode::Plain if habits.calls_waiters => {
                Channels { own: channels::calls(name, client), common: Some(channels::plain(name)) }
            }
            Mode::Plain => Channels::one(channels::plain(name)),
            Mode::Fair => {
                let common = habits.has_foreign_channel.then(|| channels::foreign(name));
                Channels { own: channels::fair_grants(name, client), common }
            }
            Mode::Write => {
                let common = Some(channels::read_write(name));
                Channels { own: channels::write_grants(name, client), common }
            }
            Mode::Permits => Channels::one(channels::permits_grants(name, client)),
            _ => Channels::one(channels::read_write(name)),
        }
    }

    fn grants_suffice(&self) -> bool {
        self.shared.habits.grants_suffice
    }

    fn calls_waiters(&self) -> bool {
        self.shared.habits.calls_waiters
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
        let step = move |step: &mut Step<'_>| step.acquire(mode, &asks);
        let outcome = self.attempt(kind(mode), name, &request.id, what, step).await?;
        let held = matches!(outcome, AcquireOutcome::Held { .. }).then(|| self.shared.world.now());
        // An owner that reads under its own write lock learns only that its write lease is gone.
        if held.is_none() || request.under.is_none() {
            self.shared.data().contract.tells(&request.id.client_id(), mode, name.as_str(), held);
        }
        // Some waiters are told to listen to all that is published.
        Ok(match outcome {
            AcquireOutcome::Held { left }
                if mode == Mode::Plain
                    && self.calls_waiters()
                    && self.shared.world.chance(|chance| chance.u8(..16) == 0) =>
            {
                AcquireOutcome::HeldUncalled { left }
            }
            outcome => outcome,
        })
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
        for lease in leases {
            self.shared.data().contract.tells(&lease.id.client_id(), mode, lease.name.as_str(), None);
        }
        let listed = leases.iter().map(|key| format!("{:?} #{}", key.name.as_str(), key.id.number()));
        let what = format!("renew {} for {lease:?}", listed.collect::<Vec<_>>().join(", "));
        let (from, leases) = (self.process.index(), leases.to_vec());
        let run = move |shared: &Arc<Shared>| {
            let each = leases.iter().map(|LeaseKey { name, id }| {
                shared.step(from, kind(mode), name.as_str(), |step| step.renew(mode, id, lease)).answer
            });
            each.collect()
        };
        self.shared.command(&self.process, what, Role { renews: true, ..Role::default() }, run).await
    }

    async fn force_release(&self, mode: Mode, name: &LockName) -> Result<bool, Failed> {
        let what = format!("force {:?} free", name.as_str());
        let step = move |step: &mut Step<'_>| step.force_release(mode);
        self.send(kind(mode), name, what, Role::default(), step).await?.0.map_err(Failed::other_kind)
    }

    async fn holders(&self, mode: Mode, name: &LockName) -> Result<Vec<Holder>, Failed> {
        let what = format!("holders of {:?}", name.as_str());
        let (from, name) = (self.process.index(), name.as_str().to_owned());
        let run = move |shared: &Arc<Shared>| shared.look(from, &name, |name, now| name.holders(mode, now));
        self.shared.command(&self.process, what, Role::default(), run).await?.map_err(Failed::other_kind)
    }
}
