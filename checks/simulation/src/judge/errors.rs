//! `Lock::lock`: "`LockError::Backend` if an attempt fails […]. `LockError::Subscribe` if the lock's messages
//! cannot be had. `LockError::OtherKind` if the name is held as another kind of lock. `LockError::ShutDown`,
//! `RuntimeEnded` and `Forked` if the client cannot be used any more." And of `Lock::lock_with_lease`:
//! "`LockError::Lease` if the lease cannot be kept, or is over before the store's answer is there." So each
//! error needs its reason. `LockError::NoAnswer`: "since the call began the store had told no waiter of this
//! client that the lock is held". `LockError::Permits` "for 0 and for more than the capacity".

use latchwork::LockError;

use super::Judge;
use super::calm::is_calm;
use super::words::words;
use crate::program::{How, LockSide, Op};
use crate::stage::{Answer, Call, Event, View};
use crate::store::{Network, Store};
use crate::task::{MOMENT, error_words};
use crate::time;

#[derive(Default)]
pub(crate) struct Errors;

impl<S: Store> Judge<S> for Errors {
    fn name(&self) -> &'static str {
        "errors"
    }

    fn hear(&mut self, event: &Event, view: &View<'_, S>) -> Option<String> {
        let Event::Answered(call, Answer::Failed(error)) = event else { return None };
        if has_reason(view, call, error) {
            return None;
        }
        let (what, since, error) = (words(view, call), time::seconds(call.began), error_words(error));
        Some(format!("{what} since {since}: expected no error without a reason, saw {error}"))
    }
}

/// True if a command over a new connection may exceed the command's limit: the dial takes four round trips,
/// and the command one.
fn is_slow(network: &Network) -> bool {
    10 * network.latency > network.answer_limit
}

fn has_reason<S: Store>(view: &View<'_, S>, call: &Call, error: &LockError) -> bool {
    let member = &view.scene.members[call.member];
    match error {
        // A store in memory always answers. An unpolled call may send its command when its limit is over.
        LockError::Backend { .. } | LockError::ReleasePending { .. } => {
            S::APART && (!is_calm(view) || is_slow(&view.program.network) || call.was_stalled)
        }
        LockError::Subscribe(_) => call
            .lock
            .is_none_or(|lock| view.store.may_have_refused(&member.process, view.name(lock), call.began)),
        LockError::OtherKind { .. } => call.lock.is_none_or(|lock| {
            let locks = view.program.locks();
            locks.iter().any(|other| other.name == lock.name && !other.is_one_with(lock))
        }),
        LockError::Upgrade { .. } => {
            matches!(&call.op, Op::Acquire { lock, owner: Some(_), .. } if lock.kind == LockSide::Write)
        }
        LockError::ShutDown => member.is_shut_down,
        LockError::Lease(_) => match &call.op {
            Op::Acquire { how: How::Leased(lease) | How::TryFor { lease: Some(lease), .. }, .. }
            | Op::AcquireAll { how: How::Leased(lease) | How::TryFor { lease: Some(lease), .. }, .. } => {
                let lasted = view.now - call.began;
                lasted + view.drift(call.member, lasted) + MOMENT >= *lease
            }
            _ => false,
        },
        // Only an explicit owner can hold the other side of the lock, or ask to extend a hold.
        LockError::NoAnswer { .. } => match &call.op {
            // The store told another acquisition.
            Op::Acquire { lock, .. } if lock.kind == LockSide::Permits => true,
            // After a suspension, the client's knowledge of its own holds has expired.
            _ if member.stood_still_until > call.began => true,
            Op::Acquire { lock, owner: None, .. } => view
                .store
                .told_held(&member.client_id, lock.kind.mode(), view.name(*lock))
                // A slow clock may show two moments as one.
                .is_none_or(|told| told <= call.began + 1),
            _ => true,
        },
        LockError::Permits { .. } => match &call.op {
            Op::Acquire { lock, permits, .. } => {
                lock.kind == LockSide::Permits && !(1..=permits.capacity).contains(&permits.count)
            }
            _ => false,
        },
        LockError::RuntimeEnded | LockError::Name(_) | LockError::Unsupported { .. } => false,
        _ => true,
    }
}
