//! The follower: told by a Sentinel when the master changes.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Msg, PushInfo, PushKind};
use tokio::sync::Notify;

use crate::support::runtime::Runtime;

use super::super::super::connection::{BackOff, Common, Error, Push};
use super::shared::{Shared, address};

/// The channel of a Sentinel's message that the master has changed: the master's name, its old host and port,
/// its new host and port.
const SWITCH_CHANNEL: &str = "+switch-master";

/// Follows one Sentinel, and when it is gone another, for ever.
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
            // The next one may be in order.
            if stood {
                runtime.sleep(back_off.next(runtime.random())).await;
            }
        }
        runtime.sleep(back_off.next(runtime.random())).await;
    }
}

/// Subscribes to one Sentinel, until it does not answer, or does not know the master; or until another one is
/// preferred, which is no error. `stood`: becomes true with the subscription. The Sentinel is asked again and
/// again: it may have been told what we were not, and the link may be cut in silence.
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
                // Kept if there are no listeners right now.
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
        tokio::select! {
            biased;
            () = broken.notified() => return Err(Error::connection_lost(&dialer.address())),
            () = common.runtime.sleep(pause) => {}
        }
        // One that has just been followed is preferred once it has said something.
        if pause > Duration::ZERO && shared.in_turn().next() != Some(sentinel) {
            return Ok(());
        }
        // As when connecting: what comes by message while the answer is on its way is newer.
        let before = shared.known.borrow().clone();
        let said = shared.ask_over(&mut connection).await;
        match said.map_err(|error| Error::greeting(&dialer.address(), "SENTINEL", error))? {
            Some((host, port)) => shared.learn(&address(&host, port), |known| *known == before),
            None => return Err(Error::unknown_master(&shared.name)),
        }
        if pause > Duration::ZERO {
            // It stands and answers. Not before: one that can be connected to and knows nothing is no reason
            // to hurry.
            back_off.reset();
        } else {
            shared.prefer(sentinel);
        }
        pause = common.timing.heartbeat_pause(common.runtime.random());
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

/// The new address of the master `name`, if the message is about that one.
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
