//! The follower: learns from a Sentinel when the master changes.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Msg, PushInfo, PushKind};
use tokio::sync::Notify;

use crate::support::runtime::Runtime;

use super::super::super::connection::{Address, BackOff, Common, Error, Push};
use super::shared::Shared;

/// The channel for a new master. Message: the master's name, old host and port, new host and port.
const SWITCH_CHANNEL: &str = "+switch-master";

/// Follows one Sentinel after another, forever.
pub(super) async fn follow(shared: Arc<Shared>, common: Arc<Common>) {
    let mut back_off = BackOff::default();
    let runtime = &common.runtime;
    loop {
        for sentinel in shared.in_turn() {
            let mut stood = false;
            let listened = listen(&shared, sentinel, &common, &mut back_off, &mut stood).await;
            let Err(_error) = listened else { break };
            event!(
                WARN,
                sentinel = &*shared.sentinels[sentinel].address(),
                error = &_error as &dyn std::error::Error,
                "Sentinel lost"
            );
            // No pause after a Sentinel that refuses the subscription: the next one may be in order.
            if stood {
                runtime.sleep(back_off.next(runtime.random())).await;
            }
        }
        runtime.sleep(back_off.next(runtime.random())).await;
    }
}

/// Follows one Sentinel until its connection fails or it does not know the master; returns `Ok` if another
/// Sentinel is preferred. Asks for the master at every heartbeat: a message may be lost, or the link be cut
/// in silence. `stood`: set once subscribed.
pub(super) async fn listen(
    shared: &Arc<Shared>,
    sentinel: usize,
    common: &Common,
    back_off: &mut BackOff,
    stood: &mut bool,
) -> Result<(), Error> {
    let broken = Arc::new(Notify::new());
    let push: Push = Arc::new({
        let (broken, shared) = (Arc::clone(&broken), Arc::clone(shared));
        move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                // A notification without a waiter is kept.
                broken.notify_one();
            } else {
                told(&shared, push);
            }
        }
    });
    let dialer = &shared.sentinels[sentinel];
    let mut connection = dialer.dial(None, push).await?;
    let subscribed = connection.subscribe(SWITCH_CHANNEL).await;
    subscribed.map_err(|error| Error::greeting(&dialer.address(), "SUBSCRIBE", error))?;
    *stood = true;
    let mut pause = Duration::ZERO;
    loop {
        if common.runtime.timeout(pause, broken.notified()).await.is_some() {
            let lost = std::io::Error::from(std::io::ErrorKind::ConnectionAborted);
            return Err(Error::connection(&dialer.address(), lost.into()));
        }
        // Change over to a preferred Sentinel once this one has answered.
        if pause > Duration::ZERO && shared.in_turn().next() != Some(sentinel) {
            return Ok(());
        }
        // A message that comes during the question is newer than the answer.
        let before = shared.known.borrow().clone();
        let said = shared.ask_over(&mut connection).await;
        match said.map_err(|error| Error::greeting(&dialer.address(), "SENTINEL", error))? {
            Some(address) => shared.learn(&address.to_string().into(), |known| *known == before),
            None => return Err(Error::unknown_master(&shared.name)),
        }
        if pause > Duration::ZERO {
            // Only at the second answer: a Sentinel that fails after its first is retried slowly.
            back_off.reset();
        } else {
            shared.prefer(sentinel);
        }
        pause = common.timing.heartbeat_pause(common.runtime.random());
    }
}

/// Learns from a message, on the connection's task.
fn told(shared: &Shared, push: PushInfo) {
    let Some(message) = Msg::from_push_info(push) else { return };
    let Ok(text) = message.get_payload::<String>() else { return };
    if let Some(address) = switched(&text, &shared.name) {
        shared.learn(&address.to_string().into(), |_| true);
    }
}

/// Returns the new address from a message about the master `name`.
fn switched(message: &str, name: &str) -> Option<Address> {
    let mut words = message.strip_prefix(name)?.strip_prefix(' ')?.split(' ').skip(2);
    Some(Address { host: words.next()?.to_owned(), port: words.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::{Address, switched};

    #[test]
    fn message_is_read() {
        let told = "mymaster 10.0.0.1 6379 10.0.0.2 6380";
        let wanted = Address { host: "10.0.0.2".into(), port: 6380 };
        assert_eq!(switched(told, "mymaster"), Some(wanted));
        for other in ["my", "master", "mymaster2", ""] {
            assert_eq!(switched(told, other), None, "{other}");
        }
        for cut in ["", "mymaster", "mymaster 10.0.0.1 6379", "mymaster 10.0.0.1 6379 10.0.0.2 x"] {
            assert_eq!(switched(cut, "mymaster"), None, "{cut}");
        }
    }
}
