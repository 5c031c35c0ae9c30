//! [`Router`]: sends a command to where its key is, and tries again for as long as that makes sense and there
//! is time.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::redis::{FromRedisValue, Value};

use crate::runtime::Runtime;

use super::super::connection::{BackOff, Common, Error, Meaning, SendError, WireRequest};
use super::super::shield::shielded;
use super::contract::{Hop, Topology};

/// How long to wait before a command that did not run is tried again.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));
/// Redirects that are followed at once. Nodes that do not agree send us to and fro.
const REDIRECTS: u32 = 4;

/// How often a command went out before its reply came. If it went out again, it may have run more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Once,
    Again,
}

/// Why a command of several keys was given up.
pub(crate) enum CrossSlot {
    /// Not all of its keys are with the same node, and it was not to wait for that. It did not run.
    Keys,
    Failed(Error),
}

/// Sends commands over a topology.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    topology: Arc<dyn Topology>,
    common: Arc<Common>,
}

impl Router {
    pub(crate) fn new(topology: Arc<dyn Topology>, common: Arc<Common>) -> Self {
        Self { topology, common }
    }

    pub(crate) fn topology(&self) -> &Arc<dyn Topology> {
        &self.topology
    }

    /// For errors that concern no single key.
    pub(crate) fn address(&self) -> Arc<str> {
        self.topology.node("").map_or_else(Arc::default, |node| node.commands.server().address())
    }

    /// Sends a command until it is answered, was refused for good, or its limit is over.
    pub(crate) async fn send<T: FromRedisValue>(
        &self,
        request: &WireRequest<'_>,
    ) -> Result<(T, Sent), Error> {
        match self.send_together(request).await {
            Ok(reply) => Ok(reply),
            Err(CrossSlot::Failed(error)) => Err(error),
            Err(CrossSlot::Keys) => unreachable!("a patient request waits for its keys"),
        }
    }

    /// As [`send`](Self::send), for several keys, which may be with two nodes.
    pub(crate) async fn send_together<T: FromRedisValue>(
        &self,
        request: &WireRequest<'_>,
    ) -> Result<(T, Sent), CrossSlot> {
        let now = self.common.runtime.now();
        let give_up = now + request.limit;
        let hop = self.topology.node(request.key).map(|node| Hop { node, asking: false });
        let failure = match &hop {
            Some(hop) => match hop.node.commands.send(request, false, now, give_up).await {
                Ok(reply) => return self.read(request, hop, reply, Sent::Once).map_err(CrossSlot::Failed),
                Err(failure) => Some(failure),
            },
            None => None,
        };
        // Cold: boxed, to keep the hot future small.
        Box::pin(async { shielded(pin!(self.persist(request, hop, failure, give_up))).await }).await
    }

    fn read<T: FromRedisValue>(
        &self,
        request: &WireRequest<'_>,
        hop: &Hop,
        reply: Value,
        sent: Sent,
    ) -> Result<(T, Sent), Error> {
        let reply = T::from_redis_value(reply).map(|reply| (reply, sent));
        reply.map_err(|error| self.error_of(hop, request, error.into()))
    }

    /// What becomes of a command that was not answered at once.
    async fn persist<T: FromRedisValue>(
        &self,
        request: &WireRequest<'_>,
        mut hop: Option<Hop>,
        mut failure: Option<SendError>,
        give_up: Instant,
    ) -> Result<(T, Sent), CrossSlot> {
        let mut tried = Tried::new();
        loop {
            let next = match (&hop, failure.take()) {
                (Some(hop), Some(failure)) => self.next(request, hop, failure),
                _ => Remedy::Wait(Error::no_owner(self.topology.slot(request.key)), true),
            };
            let again = self.settle_on(next, request, &mut tried, give_up).await?;
            self.pause(&again, &mut tried, give_up).await?;
            let owner = || self.topology.node(request.key).map(|node| Hop { node, asking: false });
            hop = again.to.or_else(owner);
            let Some(to) = &hop else { continue };
            let now = self.common.runtime.now();
            match to.node.commands.send(request, to.asking, now, give_up).await {
                Ok(reply) => {
                    let sent = if tried.lost.is_some() { Sent::Again } else { Sent::Once };
                    return self.read(request, to, reply, sent).map_err(CrossSlot::Failed);
                }
                Err(met) => failure = Some(met),
            }
        }
    }

    /// How the command is tried again; or the error with which it is given up.
    async fn settle_on(
        &self,
        next: Remedy,
        request: &WireRequest<'_>,
        tried: &mut Tried,
        give_up: Instant,
    ) -> Result<Again, CrossSlot> {
        let (error, to, at_once) = match next {
            Remedy::Failed(error) => return Err(CrossSlot::Failed(tried.lost.take().unwrap_or(error))),
            Remedy::CrossSlot(_) if !request.patient => return Err(CrossSlot::Keys),
            Remedy::CrossSlot(error) => (error, None, false),
            Remedy::Again(error) => {
                self.topology.refresh_in_background();
                (tried.lost.get_or_insert(error).clone(), None, true)
            }
            Remedy::Hop(next, error) => {
                tried.redirects += 1;
                (error, Some(next), true)
            }
            Remedy::Wait(error, did_answer) => {
                let is_first = tried.refusal.is_none() && tried.lost.is_none();
                // Such as a master that the Sentinels do not know.
                if !did_answer && is_first && !error.may_pass() {
                    return Err(CrossSlot::Failed(error));
                }
                if did_answer {
                    tried.refusal.get_or_insert(error.clone());
                }
                // If no node answers, what became of the command is still the better thing to tell.
                let _ = self.until(give_up, self.topology.look_again()).await;
                (error, None, false)
            }
        };
        Ok(Again { error, to, at_once: at_once && tried.redirects <= REDIRECTS })
    }

    /// Waits until it is time for another try; fails if that would be too late.
    async fn pause(&self, again: &Again, tried: &mut Tried, give_up: Instant) -> Result<(), CrossSlot> {
        let runtime = &self.common.runtime;
        let pause = if again.at_once { Duration::ZERO } else { tried.back_off.next(runtime.random()) };
        let again_at = runtime.now() + pause;
        // A runtime that has ended would keep its callers waiting for ever.
        if again_at >= give_up || runtime.has_ended() {
            let known = tried.lost.take().or(tried.refusal.take());
            return Err(CrossSlot::Failed(known.unwrap_or_else(|| again.error.clone())));
        }
        if pause > Duration::ZERO {
            runtime.sleep_until(again_at).await;
        }
        Ok(())
    }

    /// What is to be done about a failure.
    fn next(&self, request: &WireRequest<'_>, hop: &Hop, failure: SendError) -> Remedy {
        let met = match failure {
            SendError::NotSent(error) => return Remedy::Wait(error, false),
            SendError::Met(met) => met,
        };
        let (meaning, redirect) = (Meaning::of(&met), self.topology.redirect(&hop.node, request.key, &met));
        let error = self.error_of(hop, request, met);
        match (meaning, redirect) {
            (Meaning::Lost, _) if request.again => Remedy::Again(error),
            (Meaning::NotServing, _) => Remedy::Wait(error, true),
            (Meaning::CrossSlot, _) => Remedy::CrossSlot(error),
            (Meaning::Elsewhere, Some(Ok(next))) => Remedy::Hop(next, error),
            (Meaning::Elsewhere, Some(Err(error))) => Remedy::Failed(error),
            (Meaning::Lost, _) => {
                // If the node is dead, the next command should not be sent there.
                self.topology.refresh_in_background();
                Remedy::Failed(error)
            }
            (Meaning::Elsewhere | Meaning::Refused, _) => Remedy::Failed(error),
        }
    }

    fn error_of(&self, hop: &Hop, request: &WireRequest<'_>, error: ::redis::RedisError) -> Error {
        let command = |in_full| request.command(in_full, self.common.runtime.now());
        let script = request.script.map(|_| command(true));
        Error::command(&hop.node.commands.server().address(), &command(false), script.as_ref(), error)
    }

    /// `None` if `future` has not ended by then.
    async fn until<F: Future>(&self, deadline: Instant, future: F) -> Option<F::Output> {
        let over = self.common.runtime.sleep_until(deadline);
        tokio::select! {
            biased;
            output = future => Some(output),
            () = over => None,
        }
    }
}

/// What a command that is tried again has met so far.
struct Tried {
    back_off: BackOff,
    redirects: u32,
    /// What was met when a reply was lost: whatever comes after it, the command may have run.
    lost: Option<Error>,
    /// What a server said that could not serve it.
    refusal: Option<Error>,
}

impl Tried {
    fn new() -> Self {
        Self { back_off: BackOff::new(BACK_OFF.0, BACK_OFF.1), redirects: 0, lost: None, refusal: None }
    }
}

/// Another try: why, to which node if one was named, and whether without a pause.
struct Again {
    error: Error,
    to: Option<Hop>,
    at_once: bool,
}

/// What is to be done about a failure. But for `Again` and `Failed` the command did not run.
enum Remedy {
    /// It goes there.
    Hop(Hop, Error),
    /// It may run a second time.
    Again(Error),
    /// A node will be able to run it, in a while. Whether a server said so.
    Wait(Error, bool),
    /// Of several keys, not all are with the same node.
    CrossSlot(Error),
    Failed(Error),
}
