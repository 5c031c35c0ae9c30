//! The follower: told by a Sentinel when the master changes.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Msg, PushInfo, PushKind};
use tokio::sync::Notify;

use crate::runtime::Runtime;

use super::super::super::connection::{BackOff, Common, Error, MultiplexedConnection, Push};
use super::shared::{Shared, address};

/// What a Sentinel publishes when the master has changed: the master's name, its old host and port, its new
/// host and port.
const SWITCHED: &str = "+switch-master";

/// Follows one Sentinel, and when it is gone another, for ever.
pub(super) async fn follow(shared: Arc<Shared>, common: Arc<Common>) {
    let mut back_off = BackOff::between_dials();
    let runtime = &common.runtime;
    loop {
        for sentinel in shared.in_turn() {
            let (_error, stood) = match Line::connect(&shared, sentinel).await {
                Err(error) => (error, false),
                Ok(mut line) => match line.listen(&common, &mut back_off).await {
                    Err(error) => (error, true),
                    Ok(()) => break,
                },
            };
            event!(
                WARN,
                sentinel = &*shared.sentinels[sentinel].address(),
                error = &_error as &dyn std::error::Error,
                "Sentinel lost"
            );
            // The next one may be in order.
            if stood {
                runtime.sleep(back_off.next(runtime.random())).await;
            }
        }
        runtime.sleep(back_off.next(runtime.random())).await;
    }
}

/// A subscription to one Sentinel.
pub(super) struct Line {
    shared: Arc<Shared>,
    sentinel: usize,
    connection: MultiplexedConnection,
    broken: Arc<Notify>,
}

impl Line {
    pub(super) async fn connect(shared: &Arc<Shared>, sentinel: usize) -> Result<Self, Error> {
        let broken = Arc::new(Notify::new());
        let push: Push = Arc::new({
            let (broken, shared) = (Arc::clone(&broken), Arc::clone(shared));
            move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    // Kept if there are no listeners right now.
                    broken.notify_one();
                } else {
                    told(&shared, push);
                }
            }
        });
        let dialer = &shared.sentinels[sentinel];
        let mut connection = dialer.dial(None, push).await?;
        let subscribed = connection.subscribe(SWITCHED).await;
        subscribed.map_err(|error| Error::greeting(&dialer.address(), "SUBSCRIBE", error))?;
        Ok(Self { shared: Arc::clone(shared), sentinel, connection, broken })
    }

    /// Until the Sentinel does not answer, or does not know the master; or until another one is preferred,
    /// which is no error. It is asked again and again: it may have been told what we were not, and the link
    /// may be cut in silence.
    pub(super) async fn listen(&mut self, common: &Common, back_off: &mut BackOff) -> Result<(), Error> {
        let (shared, dialer) = (&self.shared, &self.shared.sentinels[self.sentinel]);
        let mut pause = Duration::ZERO;
        loop {
            tokio::select! {
                biased;
                () = self.broken.notified() => return Err(Error::connection_lost(&dialer.address())),
                () = common.runtime.sleep(pause) => {}
            }
            // One that has just been followed is preferred once it has said something.
            if pause > Duration::ZERO && shared.in_turn().next() != Some(self.sentinel) {
                return Ok(());
            }
            // As when connecting: what comes by message while the answer is on its way is newer.
            let before = shared.known.borrow().clone();
            let said = shared.ask_over(&mut self.connection).await;
            match said.map_err(|error| Error::greeting(&dialer.address(), "SENTINEL", error))? {
                Some((host, port)) => shared.learn(&address(&host, port), |known| *known == before),
                None => return Err(Error::unknown_master(&shared.name)),
            }
            if pause > Duration::ZERO {
                // It stands and answers. Not before: one that can be connected to and knows nothing is no
                // reason to hurry.
                back_off.reset();
            } else {
                shared.prefer(self.sentinel);
            }
            pause = common.timing.heartbeat_pause(common.runtime.random());
        }
    }
}

/// Runs on the connection's task.
fn told(shared: &Shared, push: PushInfo) {
    let Some(message) = Msg::from_push_info(push) else { return };
    let Ok(text) = message.get_payload::<String>() else { return };
    if let Some((host, port)) = switched(&text, &shared.name) {
        shared.learn(&address(host, port), |_| true);
    }
}

/// Where the master `name` is from now on, if the message is about that one.
fn switched<'a>(message: &'a str, name: &str) -> Option<(&'a str, u16)> {
    let mut words = message.strip_prefix(name)?.strip_prefix(' ')?.split(' ').skip(2);
    Some((words.next()?, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::switched;

    #[test]
    fn message_is_read() {
        let told = "mymaster 10.0.0.1 6379 10.0.0.2 6380";
        assert_eq!(switched(told, "mymaster"), Some(("10.0.0.2", 6380)));
        for other in ["my", "master", "mymaster2", ""] {
            assert_eq!(switched(told, other), None, "{other}");
        }
        for cut in ["", "mymaster", "mymaster 10.0.0.1 6379", "mymaster 10.0.0.1 6379 10.0.0.2 x"] {
            assert_eq!(switched(cut, "mymaster"), None, "{cut}");
        }
    }
}
