//! Messages that are no grants.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::over_local::{Between, Command, Fate, There, Way, goes, over};
use crate::polled::ready;
use crate::stage::begun;
use latchwork::LockClient;
use latchwork::local::Local;

/// A store that counts questions; its grant messages suffice as leases if `grants_suffice`.
struct Questions {
    asked: Arc<AtomicUsize>,
    grants_suffice: bool,
}

impl Between for Questions {
    fn fate(&self, way: Way, command: Command<'_>) -> Fate {
        let asks = way == There && command.acquires();
        self.asked.fetch_add(usize::from(asks), Ordering::Relaxed);
        goes()
    }

    fn grants_suffice(&self) -> bool {
        self.grants_suffice
    }
}

#[test]
fn insufficient_grant_by_message_is_requested_once_more() {
    for (grants_suffice, questions) in [(true, 2), (false, 3)] {
        let (local, asked) = (Local::new(), Arc::default());
        let between = Questions { asked: Arc::clone(&asked), grants_suffice };
        let [client, other] = [LockClient::new(over(&local, between)), LockClient::new(local.clone())];
        let theirs = ready(other.get_fair_lock("orders").unwrap().lock()).unwrap();
        let lock = client.get_fair_lock("orders").unwrap();
        let waits = begun(lock.lock());
        drop(theirs);
        let held = ready(waits).unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), questions, "{grants_suffice}");
        // The release names no waiter either.
        let next = begun(lock.lock());
        drop(held);
        let _held = ready(next).unwrap();
        let asked = asked.load(Ordering::Relaxed) - questions;
        assert_eq!(asked > 0, !grants_suffice, "{grants_suffice}: {asked}");
    }
}
