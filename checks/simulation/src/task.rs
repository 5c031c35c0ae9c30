//! A task of a process: plays its operations one after another.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use latchwork::backend::Runtime;
use latchwork::{Guard, Lock, LockError, Owner};

use crate::care::{Callback, Ended, cared};
use crate::handle::{Handle, Held, acquire_all};
use crate::program::{Care, How, LockSide, Op, Permits, Program, Question, WakerKind, Which};
use crate::stage::{Answer, Call, Event, Hold, Stage, lock_words, number_of};
use crate::store::{Store, StoredLease, duration, nanos};
use crate::time;
use crate::world::{MS, Nanos, SECOND};

/// Limit on an acquisition by a task that already has a hold, so that no program deadlocks itself.
const WHILE_HOLDING: Nanos = 15 * SECOND;

/// Limit on waiting for a loss, which may never come.
const FOR_A_LOSS: Nanos = 40 * SECOND;

/// Interval at which a task that has ended looks if its forgotten permits are free.
const LOOKED_AT: Nanos = 60 * SECOND;

pub(crate) async fn play<S: Store>(stage: Stage<S>, member: usize, task: usize, from: usize) {
    let plan = stage.scene().members[member].plan;
    let operations = stage.program.processes[plan].tasks[task].clone();
    let mut player = Player {
        stage,
        member,
        task,
        at: from,
        holds: Vec::new(),
        forgotten: Vec::new(),
        unreleasable: Vec::new(),
        handles: BTreeMap::new(),
    };
    for (at, operation) in operations.iter().enumerate().skip(from) {
        if player.stage.world.now() >= player.stage.program.end {
            break;
        }
        player.at = at;
        player.stage.scene().begins(plan, task, at);
        // Lets the judges look between two operations.
        yield_now().await;
        player.perform(operation).await;
    }
    yield_now().await;
    player.give_everything_back().await;
    player.stage.scene().members[member].tasks -= 1;
    player.note(|| "ends".to_owned());
}

struct Player<S: Store> {
    stage: Stage<S>,
    member: usize,
    task: usize,
    at: usize,
    /// Holds in order of their grants, except for forgotten ones.
    holds: Vec<u64>,
    forgotten: Vec<u64>,
    /// Forgotten permits, which no owner can release.
    unreleasable: Vec<u64>,
    /// By lock, and by capacity of a semaphore.
    handles: BTreeMap<(Which, u32), Handle>,
}

#[derive(Clone, Copy, Default)]
struct About {
    lock: Option<Which>,
    hold: Option<u64>,
}

impl<S: Store> Player<S> {
    fn note(&self, line: impl FnOnce() -> String) {
        let (member, task) = (self.member, self.task);
        self.stage.world.note(|| format!("p{member}t{task} {}", line()));
    }

    async fn perform(&mut self, operation: &Op) {
        match operation {
            Op::Sleep(time) => {
                let now = self.stage.world.now();
                let until = match self.stage.program.beat {
                    0 => now + time,
                    beat => (now + time).next_multiple_of(beat),
                };
                let until = until.min(self.stage.program.end);
                self.stage.world.sleep_until(until).await;
            }
            Op::Acquire { lock, owner, fenced, permits, how, care }
                if lock.name < self.stage.program.names.len() =>
            {
                let by = (*owner, *fenced, *permits);
                self.acquire(operation, *lock, by, how, care).await;
            }
            Op::ForceUnlock { lock, care } if lock.name < self.stage.program.names.len() => {
                self.force_unlock(operation, *lock, care).await;
            }
            Op::Ask { lock, what, care } if lock.name < self.stage.program.names.len() => {
                self.ask(operation, *lock, *what, care).await;
            }
            Op::AcquireAll { locks, how, care }
                if locks.iter().all(|lock| lock.name < self.stage.program.names.len()) =>
            {
                self.acquire_all(operation, locks, how, care).await;
            }
            Op::Acquire { .. } | Op::AcquireAll { .. } | Op::ForceUnlock { .. } | Op::Ask { .. } => {}
            Op::UnlockByOwner { care } => self.unlock_by_owner(operation, care).await,
            Op::Shutdown(limit) | Op::Drain(limit) => self.shut_down(operation, *limit).await,
            Op::DropClient => {
                self.note(|| "drops its client".to_owned());
                let client = self.stage.drop_client(self.member);
                self.stage.world.catch(|| drop(client));
            }
            Op::Extend { hold, .. }
            | Op::Unlock { hold, .. }
            | Op::Drop { hold }
            | Op::Forget { hold }
            | Op::EnsureHeld { hold, .. }
            | Op::Run { hold, .. }
            | Op::Lost { hold, .. } => {
                if !self.holds.is_empty() {
                    let id = self.holds[hold % self.holds.len()];
                    self.use_hold(operation, id).await;
                }
            }
        }
    }

    async fn use_hold(&mut self, operation: &Op, id: u64) {
        match operation {
            Op::Extend { lease, care, .. } => self.extend(operation, id, *lease, care).await,
            Op::Unlock { care, .. } => self.unlock(operation, id, care).await,
            Op::Drop { .. } => self.drop_hold(operation, id),
            Op::Forget { .. } => self.forget(operation, id),
            Op::EnsureHeld { care, .. } => self.ensure_held(operation, id, care).await,
            Op::Run { work, looks, care, .. } => self.run(operation, id, (*work, *looks), care).await,
            Op::Lost { timeout, care, .. } => self.lost(operation, id, *timeout, care).await,
            _ => {}
        }
    }

    /// Returns a handle for operations other than an acquisition, for which a capacity has no meaning.
    fn handle(&mut self, which: Which) -> Option<Handle> {
        self.handle_of(which, 1)
    }

    fn handle_of(&mut self, which: Which, capacity: u32) -> Option<Handle> {
        if let Some(kept) = self.handles.get(&(which, capacity)) {
            return Some(kept.clone());
        }
        let handle = self.handle_of_client(which, capacity)?;
        if self.stage.program.keeps_handles {
            self.handles.insert((which, capacity), handle.clone());
        }
        Some(handle)
    }

    fn handle_of_client(&self, which: Which, capacity: u32) -> Option<Handle> {
        let client = self.stage.client(self.member)?;
        let program = &self.stage.program;
        let name = program.called(&program.names[which.name]);
        match Handle::new(&client, which.kind, name, capacity) {
            Ok(handle) => Some(handle),
            Err(error) => {
                self.note(|| format!("refused: {error}"));
                None
            }
        }
    }

    fn owner(&self, index: usize) -> Owner {
        self.stage.scene().members[self.member].owner(index)
    }

    /// Returns the moment at which this process's clock will have advanced by `time`.
    fn later(&self, time: Nanos) -> Nanos {
        let process = self.stage.scene().members[self.member].process.clone();
        match process.now().checked_add(duration(time)) {
            Some(then) => process.moment(then),
            None => Nanos::MAX / 4,
        }
    }

    /// Records the start of an operation. `due`: the time by which the operation must have ended.
    fn called(&self, operation: &Op, about: About, due: Option<Nanos>) -> Call {
        let began = self.stage.world.now();
        let call = Call {
            member: self.member,
            task: self.task,
            at: self.at,
            op: operation.clone(),
            lock: about.lock,
            hold: about.hold,
            began,
            due,
            stalled_until: 0,
            was_stalled: false,
        };
        self.note(|| format!("{} {}", self.words(operation), about.hold.map_or(String::new(), hold_words)));
        let mut scene = self.stage.scene();
        scene.operations += 1;
        scene.calls.insert((self.member, self.task), call.clone());
        scene.events.push(Event::Called(call.clone()));
        call
    }

    fn answered(&self, answer: Answer) {
        self.note(|| format!("  {}", answer_words(&answer)));
        let mut scene = self.stage.scene();
        if let Some(call) = scene.calls.remove(&(self.member, self.task)) {
            scene.events.push(Event::Answered(call, answer));
        }
    }

    fn words(&self, operation: &Op) -> String {
        operation_words(&self.stage.program, operation)
    }

    async fn cared<F: Future>(&self, care: &Care, handle: Option<&Handle>, future: F) -> Ended<F::Output> {
        let callback = handle.and_then(|handle| self.callback(care.waker, handle));
        cared(&self.stage, (self.member, self.task), care, callback, future).await
    }

    fn callback(&self, kind: WakerKind, handle: &Handle) -> Option<Callback> {
        let handle = handle.clone();
        match kind {
            WakerKind::Plain | WakerKind::Panics => None,
            WakerKind::Looks => {
                let client = self.stage.client(self.member)?;
                Some(Arc::new(move || {
                    if let Handle::Lock(lock) = &handle {
                        lock.stats();
                    }
                    _ = (client.metrics(), handle.waiters(), client.registry().len());
                }))
            }
            WakerKind::Tries => Some(Arc::new(move || {
                let mut tries = Box::pin(handle.acquire(&How::Try, 1));
                _ = tries.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            })),
        }
    }

    fn command_limit(&self) -> Nanos {
        command_limit(&self.stage.program)
    }

    async fn acquire(
        &mut self,
        operation: &Op,
        which: Which,
        (owner, fenced, permits): (Option<usize>, bool, Permits),
        how: &How,
        care: &Care,
    ) {
        let Some(handle) = self.handle_of(which, permits.capacity) else { return };
        let handle = match handle {
            Handle::Lock(lock) => Handle::Lock(self.lock_by(lock, owner, fenced)),
            permits => permits,
        };
        let care = self.limited(care);
        let due = match how {
            How::Lock | How::Leased(_) => care.limit.map(|limit| self.stage.world.now() + limit),
            How::Try | How::TryFor { wait: 0, .. } => Some(self.later(self.command_limit())),
            How::TryFor { wait, .. } => Some(self.later(*wait)),
        };
        let call = self.called(operation, About { lock: Some(which), hold: None }, due);
        let ended = self.cared(&care, Some(&handle), handle.acquire(how, permits.count)).await;
        let got = match ended {
            Ended::Dropped => return self.answered(Answer::Dropped),
            Ended::Panicked => return self.answered(Answer::Panicked),
            Ended::Ready(Err(error)) => return self.answered(Answer::Failed(error)),
            Ended::Ready(Ok(None)) => return self.answered(Answer::NotGot),
            Ended::Ready(Ok(Some(guard))) => self.got(&call, (which, permits), guard, how.lease()),
        };
        self.answered(Answer::Got(got));
        // Lets the judges look between two polls.
        self.stage.world.sleep(1).await;
    }

    /// The care of an acquisition.
    fn limited(&self, care: &Care) -> Care {
        let mut care = care.clone();
        if !self.holds.is_empty() || !self.forgotten.is_empty() {
            care.limit = Some(care.limit.unwrap_or(Nanos::MAX).min(WHILE_HOLDING));
        }
        care
    }

    async fn acquire_all(&mut self, operation: &Op, locks: &[Which], how: &How, care: &Care) {
        let Some(client) = self.stage.client(self.member) else { return };
        let mut handles = Vec::new();
        for which in locks {
            if let Some(Handle::Lock(lock)) = self.handle(*which) {
                handles.push(lock);
            }
        }
        let all = match client.get_multi_lock(&handles) {
            Ok(all) if handles.len() == locks.len() => all,
            Ok(_) => return,
            Err(error) => return self.note(|| format!("refused: {error}")),
        };
        let care = self.limited(care);
        let due = match how {
            How::TryFor { wait, .. } if *wait > 0 => Some(self.later(*wait)),
            _ => None,
        };
        let call = self.called(operation, About::default(), due);
        let guards = match self.cared(&care, None, acquire_all(&all, how)).await {
            Ended::Dropped => return self.answered(Answer::Dropped),
            Ended::Panicked => return self.answered(Answer::Panicked),
            Ended::Ready(Err(error)) => return self.answered(Answer::Failed(error)),
            Ended::Ready(Ok(None)) => return self.answered(Answer::NotGot),
            Ended::Ready(Ok(Some(guard))) => guard.into_guards(),
        };
        let mut locks = locks.to_vec();
        locks.sort_by(|one, other| {
            let name = |lock: &Which| &self.stage.program.names[lock.name];
            name(one).cmp(name(other))
        });
        for (guard, lock) in guards.into_iter().zip(locks) {
            self.got(&call, (lock, Permits::default()), Held::Lock(guard), how.lease());
        }
        self.answered(Answer::Done);
        self.stage.world.sleep(1).await;
    }

    fn lock_by(&self, lock: Lock, owner: Option<usize>, fenced: bool) -> Lock {
        // The order of `fenced` and `owned_by` must not matter.
        let is_fenced_first = fenced && owner.is_some_and(|owner| owner % 2 == 1);
        let lock = if is_fenced_first { lock.fenced() } else { lock };
        let lock = owner.map_or(lock.clone(), |owner| lock.owned_by(&self.owner(owner)));
        if fenced && !is_fenced_first { lock.fenced() } else { lock }
    }

    /// Records the hold of a new guard.
    fn got(
        &mut self,
        call: &Call,
        (lock, permits): (Which, Permits),
        guard: Held,
        lease: Option<Nanos>,
    ) -> u64 {
        let (owner, token, left) = (*guard.owner(), guard.fencing_token(), guard.remaining());
        let granted = self.stage.world.now();
        let id = {
            let mut scene = self.stage.scene();
            let id = scene.new_hold();
            let hold = Hold {
                id,
                member: self.member,
                task: self.task,
                lock,
                permits,
                owner,
                guard: Some(Arc::new(guard)),
                token,
                number: 0,
                began: call.began,
                granted,
                lease,
                left: nanos(left),
                loss: None,
                is_forgotten: false,
            };
            scene.holds.insert(id, hold);
            scene.events.push(Event::Granted(id));
            id
        };
        self.note(|| {
            let token = token.map_or(String::new(), |token| format!(", token {token}"));
            format!("  hold {id} by owner {}, for {}{token}", number_of(&owner), left_words(left))
        });
        self.holds.push(id);
        id
    }

    async fn extend(&mut self, operation: &Op, id: u64, lease: Nanos, care: &Care) {
        let Some((mut guard, lock)) = self.take_guard(id) else { return };
        let handle = self.handle(lock);
        self.called(
            operation,
            About { lock: Some(lock), hold: Some(id) },
            Some(self.later(self.command_limit())),
        );
        let ended = self.cared(care, handle.as_ref(), guard.extend(duration(lease))).await;
        {
            let mut scene = self.stage.scene();
            if let Some(hold) = scene.holds.get_mut(&id) {
                hold.lease = hold.lease.map(|before| before.max(lease));
                hold.guard = Some(Arc::new(guard));
            }
        }
        self.answered(plain(ended));
    }

    async fn run(&mut self, operation: &Op, id: u64, (work, looks): (Nanos, bool), care: &Care) {
        let Some((guard, lock)) = self.take_guard(id) else { return };
        let handle = self.handle(lock);
        self.called(operation, About { lock: Some(lock), hold: Some(id) }, None);
        // Work stops at the program's end.
        let end = self.stage.world.now().saturating_add(work).min(self.stage.program.end);
        let stage = self.stage.clone();
        // The hold ends with the work, before the reply to its release.
        let done = move || give_back(&stage, id);
        let (world, step) = (self.stage.world.clone(), (work / 10).max(1));
        let ended = match guard {
            Held::Lock(guard) if looks => {
                let works = async move |guard: &Guard| {
                    while world.now() < end {
                        world.sleep_until(end.min(world.now() + step)).await;
                        assert!(
                            guard.is_held(),
                            "expected the work to end with the lock, and it goes on without a hold"
                        );
                    }
                    done();
                };
                self.cared(care, handle.as_ref(), guard.run_with(works)).await
            }
            guard => {
                let works = async move {
                    world.sleep_until(end).await;
                    done();
                };
                self.cared(care, handle.as_ref(), guard.run(works)).await
            }
        };
        self.given_back(id);
        self.answered(plain(ended));
    }

    fn take_guard(&self, id: u64) -> Option<(Held, Which)> {
        let mut scene = self.stage.scene();
        let hold = scene.holds.get_mut(&id)?;
        let guard = hold.guard.take()?;
        Some((Arc::into_inner(guard).expect("no other call of this task has it"), hold.lock))
    }

    fn given_back(&mut self, id: u64) {
        self.holds.retain(|hold| *hold != id);
        self.forgotten.retain(|hold| *hold != id);
        give_back(&self.stage, id);
    }

    async fn unlock(&mut self, operation: &Op, id: u64, care: &Care) {
        let Some((guard, lock)) = self.take_guard(id) else { return };
        let handle = self.handle(lock);
        self.called(
            operation,
            About { lock: Some(lock), hold: Some(id) },
            Some(self.later(self.command_limit())),
        );
        self.given_back(id);
        let ended = self.cared(care, handle.as_ref(), guard.unlock()).await;
        self.answered(plain(ended));
    }

    fn drop_hold(&mut self, operation: &Op, id: u64) {
        let Some((guard, lock)) = self.take_guard(id) else { return };
        self.called(operation, About { lock: Some(lock), hold: Some(id) }, None);
        self.given_back(id);
        self.stage.world.catch(|| drop(guard));
        self.answered(Answer::Done);
    }

    fn forget(&mut self, operation: &Op, id: u64) {
        // Only a client can release a forgotten hold.
        if self.stage.client(self.member).is_none() {
            return;
        }
        let Some((guard, lock)) = self.take_guard(id) else { return };
        self.called(operation, About { lock: Some(lock), hold: Some(id) }, None);
        self.stage.world.catch(|| guard.forget());
        self.holds.retain(|hold| *hold != id);
        match lock.kind {
            LockSide::Permits => self.unreleasable.push(id),
            _ => self.forgotten.push(id),
        }
        if let Some(hold) = self.stage.scene().holds.get_mut(&id) {
            hold.is_forgotten = true;
        }
        self.answered(Answer::Done);
    }

    async fn unlock_by_owner(&mut self, operation: &Op, care: &Care) {
        let found = {
            let scene = self.stage.scene();
            let mut holds = self.forgotten.iter().chain(&self.holds).filter_map(|id| scene.holds.get(id));
            let found = holds.find(|hold| hold.lock.kind != LockSide::Permits);
            found.map(|hold| (hold.id, hold.lock, hold.owner))
        };
        let Some((id, which, owner)) = found else { return };
        let Some(handle) = self.handle(which) else { return };
        let Handle::Lock(lock) = &handle else { return };
        self.called(
            operation,
            About { lock: Some(which), hold: Some(id) },
            Some(self.later(self.command_limit())),
        );
        if self.forgotten.first() == Some(&id) {
            self.given_back(id);
        }
        let ended = self.cared(care, Some(&handle), lock.unlock(&owner)).await;
        self.answered(plain(ended));
    }

    async fn force_unlock(&mut self, operation: &Op, which: Which, care: &Care) {
        let Some(handle) = self.handle(which) else { return };
        let about = About { lock: Some(which), hold: None };
        self.called(operation, about, Some(self.later(self.command_limit())));
        let ended = self.cared(care, Some(&handle), handle.force()).await;
        self.answered(answer(ended, Answer::Freed));
    }

    async fn ensure_held(&mut self, operation: &Op, id: u64, care: &Care) {
        let Some((guard, lock)) = self.shared_guard(id) else { return };
        let handle = self.handle(lock);
        self.called(
            operation,
            About { lock: Some(lock), hold: Some(id) },
            Some(self.later(self.command_limit())),
        );
        let ended = self.cared(care, handle.as_ref(), guard.ensure_held()).await;
        drop(guard);
        self.answered(plain(ended));
    }

    fn shared_guard(&self, id: u64) -> Option<(Arc<Held>, Which)> {
        let scene = self.stage.scene();
        let hold = scene.holds.get(&id)?;
        Some((Arc::clone(hold.guard.as_ref()?), hold.lock))
    }

    async fn lost(&mut self, operation: &Op, id: u64, timeout: Option<Nanos>, care: &Care) {
        let Some((guard, lock)) = self.shared_guard(id) else { return };
        let handle = self.handle(lock);
        let mut care = care.clone();
        care.limit = Some(care.limit.unwrap_or(Nanos::MAX).min(FOR_A_LOSS));
        let due = timeout.map(|timeout| self.later(timeout));
        self.called(operation, About { lock: Some(lock), hold: Some(id) }, due);
        let ended = match timeout {
            None => match self.cared(&care, handle.as_ref(), guard.lost()).await {
                Ended::Ready(reason) => Answer::Lost(reason),
                Ended::Dropped => Answer::Dropped,
                Ended::Panicked => Answer::Panicked,
            },
            Some(time) => {
                match self.cared(&care, handle.as_ref(), guard.lost_timeout(duration(time))).await {
                    Ended::Ready(Some(reason)) => Answer::Lost(reason),
                    Ended::Ready(None) => Answer::NotLost,
                    Ended::Dropped => Answer::Dropped,
                    Ended::Panicked => Answer::Panicked,
                }
            }
        };
        drop(guard);
        self.answered(ended);
    }

    async fn ask(&mut self, operation: &Op, which: Which, what: Question, care: &Care) {
        let Some(its) = self.handle(which) else { return };
        let about = About { lock: Some(which), hold: None };
        self.called(operation, about, Some(self.later(self.command_limit())));
        let handle = Some(&its);
        let said = match (what, &its) {
            (Question::Waiters, _) => Answer::Count(its.waiters() as u64),
            (Question::Metrics | Question::Listing, _) => match self.stage.client(self.member) {
                None => Answer::Dropped,
                Some(client) if what == Question::Metrics => Answer::Metrics(Box::new(client.metrics())),
                Some(client) => Answer::Listing(client.held(), client.waiting()),
            },
            (_, Handle::Permits(all)) => answer(self.cared(care, handle, all.usage()).await, Answer::Usage),
            (Question::Holder | Question::Usage, Handle::Lock(lock)) => {
                answer(self.cared(care, handle, lock.holder()).await, |holder| {
                    Answer::Holder(holder.map(|holder| {
                        (holder.id.map(|id| (id.client_id(), id.number())), nanos(holder.left))
                    }))
                })
            }
            (Question::IsLocked, Handle::Lock(lock)) => {
                answer(self.cared(care, handle, lock.is_locked()).await, Answer::Yes)
            }
            (Question::Remaining, Handle::Lock(lock)) => {
                answer(self.cared(care, handle, lock.remaining()).await, |left| {
                    Answer::Remaining(left.map(nanos))
                })
            }
            (Question::HoldCount(owner), Handle::Lock(lock)) => {
                let owner = self.owner(owner);
                answer(self.cared(care, handle, lock.hold_count(&owner)).await, Answer::Count)
            }
            (Question::IsHeldBy(owner), Handle::Lock(lock)) => {
                let owner = self.owner(owner);
                answer(self.cared(care, handle, lock.is_held_by(&owner)).await, Answer::Yes)
            }
            (Question::Stats, Handle::Lock(lock)) => Answer::Stats(lock.stats()),
        };
        self.answered(said);
    }

    async fn shut_down(&mut self, operation: &Op, limit: Nanos) {
        let Some(client) = self.stage.client(self.member) else { return };
        self.stage.scene().members[self.member].is_shut_down = true;
        self.called(operation, About::default(), Some(self.later(limit)));
        let ends = async {
            match operation {
                Op::Drain(_) => client.drain(duration(limit)).await,
                _ => client.shutdown(duration(limit)).await,
            }
        };
        let said = match self.cared(&Care::default(), None, ends).await {
            Ended::Ready(result) => Answer::Shutdown(result),
            Ended::Dropped => Answer::Dropped,
            Ended::Panicked => Answer::Panicked,
        };
        self.answered(said);
    }

    async fn give_everything_back(&mut self) {
        while let Some(id) = self.holds.last().copied() {
            self.drop_hold(&Op::Drop { hold: self.holds.len() - 1 }, id);
            self.given_back(id);
        }
        while !self.forgotten.is_empty() {
            let before = self.forgotten.len();
            self.unlock_by_owner(&Op::UnlockByOwner { care: Care::default() }, &Care::default()).await;
            if self.forgotten.len() == before {
                break;
            }
        }
        for id in std::mem::take(&mut self.unreleasable) {
            while let Some(ends) = self.stored_until(id) {
                // The permits may be forced free meanwhile.
                self.stage.world.sleep_until(ends.min(self.stage.world.now() + LOOKED_AT)).await;
            }
            self.given_back(id);
        }
    }

    /// Returns the end of the store's lease of a hold.
    fn stored_until(&self, id: u64) -> Option<Nanos> {
        let (lock, number) = self.stage.scene().holds.get(&id).map(|hold| (hold.lock, hold.number))?;
        let client = self.stage.scene().members[self.member].client_id.clone();
        let leases = self.stage.store.leases(lock.kind.of_store(), &self.stage.program.names[lock.name]);
        // A hold that has ended in the moment of its grant was never seen, and may have any of the leases.
        let is_its = |lease: &StoredLease| [0, lease.number].contains(&number) && lease.client == client;
        let lease = leases.into_iter().find(is_its);
        lease.map(|lease| lease.ends).filter(|ends| *ends > self.stage.world.now())
    }
}

fn give_back<S: Store>(stage: &Stage<S>, id: u64) {
    let mut scene = stage.scene();
    if let Some(hold) = scene.holds.remove(&id) {
        scene.events.push(Event::GivenBack { hold: id, member: hold.member, lock: hold.lock });
    }
}

async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn answer<T>(ended: Ended<Result<T, LockError>>, done: impl FnOnce(T) -> Answer) -> Answer {
    match ended {
        Ended::Ready(Ok(value)) => done(value),
        Ended::Ready(Err(error)) => Answer::Failed(error),
        Ended::Dropped => Answer::Dropped,
        Ended::Panicked => Answer::Panicked,
    }
}

fn plain(ended: Ended<Result<(), LockError>>) -> Answer {
    answer(ended, |()| Answer::Done)
}

fn hold_words(id: u64) -> String {
    format!("(hold {id})")
}

fn left_words(left: Duration) -> String {
    match left {
        Duration::MAX => "ever".to_owned(),
        left => time::seconds(nanos(left)),
    }
}

/// Describes an answer without clients' ids, which differ between runs.
fn answer_words(answer: &Answer) -> String {
    match answer {
        Answer::Failed(error) => format!("fails: {}", error_words(error)),
        Answer::Holder(Some((Some((_, number)), left))) => {
            format!("lease {number}, for {}", time::seconds(*left))
        }
        Answer::Holder(Some((None, left))) => format!("a stranger, for {}", time::seconds(*left)),
        Answer::Holder(None) => "free".to_owned(),
        Answer::Shutdown(Ok(())) => "is shut down".to_owned(),
        Answer::Shutdown(Err(error)) => {
            let count = |names: &[latchwork::lock::LockName]| names.len();
            format!("{} releasing, {} held still", count(error.releasing()), count(error.held()))
        }
        Answer::Metrics(metrics) => {
            format!("{} acquisitions, {} lost", metrics.waits.count(), metrics.leases_lost)
        }
        Answer::Usage(usage) => format!("{} permits of {} holders", usage.used, usage.holders.len()),
        Answer::Listing(held, waiting) => format!("{} held, {} waited for", held.len(), waiting.len()),
        other => format!("{other:?}"),
    }
}

pub(crate) fn error_words(error: &LockError) -> String {
    match error {
        LockError::NotHeld { .. } => "not held".to_owned(),
        LockError::Lost { reason, .. } => format!("lost, {reason:?}"),
        LockError::Backend { failure, .. } => format!("store, {failure:?}"),
        LockError::ReleasePending { failure, .. } => format!("release pending, {failure:?}"),
        LockError::OtherKind { found, .. } => format!("other kind, {found:?}"),
        LockError::Upgrade { .. } => "upgrade".to_owned(),
        LockError::NoAnswer { .. } => "no answer".to_owned(),
        LockError::Subscribe(_) => "subscribe".to_owned(),
        other => format!("{other:?}"),
    }
}

pub(crate) fn operation_words(program: &Program, operation: &Op) -> String {
    let lock = |lock: Which| lock_words(program, lock);
    match operation {
        Op::Sleep(time) => format!("sleep {}", time::text(*time)),
        Op::Acquire { lock: which, owner, fenced, permits, how, care } => {
            let how = how_words(how);
            let owner = owner.map_or(String::new(), |owner| format!(" as owner {owner}"));
            let fenced = if *fenced { " fenced" } else { "" };
            let permits = match which.kind {
                LockSide::Permits => format!(", {} of {}", permits.count, permits.capacity),
                _ => String::new(),
            };
            format!("{how} {}{owner}{fenced}{permits}{}", lock(*which), care_words(care))
        }
        Op::AcquireAll { locks, how, care } => {
            let locks: Vec<String> = locks.iter().map(|which| lock(*which)).collect();
            format!("{} all of {}{}", how_words(how), locks.join(", "), care_words(care))
        }
        Op::Extend { hold, lease, care } => {
            format!("extend [{hold}] to {}{}", time::text(*lease), care_words(care))
        }
        Op::Unlock { hold, care } => format!("unlock [{hold}]{}", care_words(care)),
        Op::Drop { hold } => format!("drop [{hold}]"),
        Op::Forget { hold } => format!("forget [{hold}]"),
        Op::UnlockByOwner { care } => format!("unlock by owner{}", care_words(care)),
        Op::ForceUnlock { lock: which, care } => format!("force_unlock {}{}", lock(*which), care_words(care)),
        Op::EnsureHeld { hold, care } => format!("ensure_held [{hold}]{}", care_words(care)),
        Op::Lost { hold, timeout: None, care } => format!("lost [{hold}]{}", care_words(care)),
        Op::Lost { hold, timeout: Some(timeout), care } => {
            format!("lost_timeout({}) [{hold}]{}", time::text(*timeout), care_words(care))
        }
        Op::Ask { lock: which, what, care } => format!("{what:?} {}{}", lock(*which), care_words(care)),
        Op::Shutdown(limit) => format!("shutdown({})", time::text(*limit)),
        Op::Drain(limit) => format!("drain({})", time::text(*limit)),
        Op::Run { hold, work, looks, care } => {
            let with = if *looks { "_with" } else { "" };
            format!("run{with} [{hold}] for {}{}", time::text(*work), care_words(care))
        }
        Op::DropClient => "drop the client".to_owned(),
    }
}

fn how_words(how: &How) -> String {
    match how {
        How::Lock => "lock".to_owned(),
        How::Leased(lease) => format!("lock_with_lease({})", time::text(*lease)),
        How::Try => "try_lock".to_owned(),
        How::TryFor { wait, lease } => {
            let lease = lease.map_or("watched".to_owned(), time::text);
            format!("try_lock_for({}, {lease})", time::text(*wait))
        }
    }
}

fn care_words(care: &Care) -> String {
    let dropped = care.drop_after.map(|polls| format!("dropped after {polls} polls"));
    let limited = care.limit.map(|limit| format!("dropped after {}", time::text(limit)));
    let stalled = care.stall.as_ref().map(|stall| {
        let drops = if stall.drops { ", then dropped" } else { "" };
        format!("not polled for {} after {} polls{drops}", time::text(stall.lasts), stall.polls)
    });
    let waker = match care.waker {
        WakerKind::Plain => None,
        WakerKind::Panics => Some("waker panics".to_owned()),
        WakerKind::Looks => Some("waker looks".to_owned()),
        WakerKind::Tries => Some("waker tries".to_owned()),
    };
    let words: Vec<String> = [dropped, limited, stalled, waker].into_iter().flatten().collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

/// Longest time for a command and its follow-ups, which no limit of the caller cuts short.
pub(crate) fn command_limit(program: &Program) -> Nanos {
    4 * program.network.answer_limit + 2 * SECOND
}

/// Allowance of judges beside a limit: a round trip of a calm network, and a little more.
pub(crate) const MOMENT: Nanos = 5 * MS;
