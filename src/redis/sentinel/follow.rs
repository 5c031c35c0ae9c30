//! The follower: told by a Sentinel when the master changes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{ErrorKind as Kind, Msg, PushInfo, PushKind, RedisError};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::super::back_off::BackOff;
use super::{Shared, address};

/// What a Sentinel publishes when the master has changed: the master's name, its old host and port, its new host and port.
const SWITCHED: &str = "+switch-master";
/// How often the Sentinel is asked all the same: it may have been told what we were not, and the link may be cut in silence.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Follows one Sentinel, and when it is gone another, for ever.
pub(super) async fn follow(shared: Arc<Shared>) {
    let mut back_off = BackOff::to_reconnect();
    loop {
        for sentinel in shared.in_turn() {
            let Ok(mut line) = Line::connect(&shared, sentinel).await else { continue };
            back_off.reset();
            let Err(_error) = line.listen().await else { break };
            event!(
                WARN,
                sentinel = line.address(),
                error = &_error as &dyn std::error::Error,
                "Sentinel lost"
            );
        }
        sleep(back_off.next()).await;
    }
}

/// A subscription to one Sentinel.
struct Line {
    shared: Arc<Shared>,
    sentinel: usize,
    connection: MultiplexedConnection,
    broken: Arc<Notify>,
}

impl Line {
    async fn connect(shared: &Arc<Shared>, sentinel: usize) -> Result<Self, RedisError> {
        let broken = Arc::new(Notify::new());
        let config = shared.config().set_push_sender({
            let (broken, shared) = (Arc::clone(&broken), Arc::clone(shared));
            move |push: PushInfo| -> Result<(), ()> {
                if push.kind == PushKind::Disconnection {
                    // Kept if nobody listens right now.
                    broken.notify_one();
                } else {
                    told(&shared, push);
                }
                Ok(())
            }
        });
        let client = &shared.sentinels[sentinel];
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        connection.subscribe(SWITCHED).await?;
        shared.prefer(sentinel);
        Ok(Self { shared: Arc::clone(shared), sentinel, connection, broken })
    }

    /// Until the Sentinel does not answer, or does not know the master; or until another one is preferred, which is no error.
    async fn listen(&mut self) -> Result<(), RedisError> {
        let mut ask_again = interval(ASK_AGAIN);
        ask_again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.broken.notified() => return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into()),
                _ = ask_again.tick() => {}
            }
            if self.shared.in_turn().next() != Some(self.sentinel) {
                return Ok(());
            }
            // As when connecting: what comes by message while the answer is on its way is newer.
            let before = self.shared.known.borrow().clone();
            match self.shared.ask_over(&mut self.connection).await? {
                Some((host, port)) => self.shared.learn(&address(&host, port), |known| *known == before),
                None => return Err((Kind::Client, "it does not know the master").into()),
            }
        }
    }

    #[cfg(feature = "tracing")]
    fn address(&self) -> String {
        self.shared.sentinels[self.sentinel].get_connection_info().addr().to_string()
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
