//! A waiter whose links are cut or silent just before it is granted the lock.

use std::time::Duration;

use latchwork::LossReason;
use latchwork_testkit::{ChaosProxy, Cut, Way};

use super::kind::sides;
use super::stage::{
    AT_ONCE, LEASE, LIFE, LITTLE, end, lock, pairs, proxied, queued, serve, until_queued, waiter_of, within,
};
use crate::day::{Day, NAME};

/// A fault on the links of the first waiter, which ends once the second one has the lock.
enum Fault {
    Cut(Cut),
    CutSubscriptions,
    CutCommands,
    Silence(&'static [Way]),
    SilentSubscriptions,
    SilentCommands,
}

impl Fault {
    fn begin(&self, proxy: &ChaosProxy) {
        let commands = || proxy.wait_for_link_of("EVAL");
        let subscriptions = || proxy.wait_for_link_of("SUBSCRIBE");
        match self {
            Fault::Cut(how) => proxy.cut(*how),
            Fault::CutSubscriptions => subscriptions().cut(Cut::Reset),
            Fault::CutCommands => commands().cut(Cut::Reset),
            Fault::Silence(ways) => ways.iter().for_each(|way| proxy.silence(*way)),
            Fault::SilentSubscriptions => subscriptions().silence(Way::ToClient),
            Fault::SilentCommands => {
                commands().silence(Way::ToClient);
                commands().silence(Way::ToServer);
            }
        }
    }

    /// The time for which others may be kept out. A client that hears nothing can still ask at its turn, and
    /// then has a lease, and not only a position.
    fn lasts(&self) -> Duration {
        match self {
            Fault::Silence([Way::ToClient]) => LEASE,
            _ => LIFE,
        }
    }
}

/// The first waits over a faulty link, the second behind the first. Both are served, one after the other.
async fn both_have_their_turn(fault: Fault) {
    let day = Day::begin();
    let (proxy, first) = proxied(&day.server).await;
    let (holder, second) = (day.bystander().await, day.bystander().await);
    for (cut_off, behind) in pairs(&first, &second) {
        let held = lock(&holder).lock().await.unwrap();
        let mut cut_off = waiter_of(&first, &cut_off.lock).await;
        let mut behind = waiter_of(&second, &behind.lock).await;
        until_queued(&day.server, 2).await;
        fault.begin(&proxy);
        held.unlock().await.unwrap();
        // Either may be first: neither sleeps beside a free lock, or for longer than a position lasts.
        let (guard, came_first) = within(fault.lasts() + LITTLE, "a waiter's turn", async {
            tokio::select! {
                guard = &mut cut_off => (guard, true),
                guard = &mut behind => (guard, false),
            }
        })
        .await;
        let guard = guard.unwrap().unwrap();
        proxy.heal();
        let left = if came_first { behind } else { cut_off };
        if !came_first {
            // The first has asked again, and does not trust the earlier grant.
            until_queued(&day.server, 1).await;
        }
        guard.ensure_held().await.unwrap();
        assert!(!left.is_finished(), "expected one holder, and the cut-off waiter has the lock as well");
        guard.unlock().await.unwrap();
        serve(AT_ONCE, "the other one's turn", left).await;
        assert_eq!(queued(&day.server).await, 0);
    }
    end(day, &[&holder, &first, &second]).await;
}

/// No other waiter: the client gets the lock as soon as it hears again.
async fn alone_it_has_its_turn(fault: Fault) {
    let day = Day::begin();
    let (proxy, client) = proxied(&day.server).await;
    let holder = day.bystander().await;
    for side in sides(&client, NAME) {
        let held = lock(&holder).lock().await.unwrap();
        let cut_off = waiter_of(&client, &side.lock).await;
        until_queued(&day.server, 1).await;
        fault.begin(&proxy);
        held.unlock().await.unwrap();
        // A reader is not granted the lock unasked, so hearing of its turn is not enough.
        if let (Fault::Silence([Way::ToServer]), false) = (&fault, side.is_shared) {
            // The waiter hears its grant, and holds the lock until its position ends.
            let guard = within(AT_ONCE, "its turn", cut_off).await.unwrap().unwrap();
            assert!(guard.is_held());
            let theirs = within(LIFE + LITTLE, "the newcomer's turn", lock(&holder).lock()).await.unwrap();
            assert!(!guard.is_held(), "expected the former holder to know of its loss");
            assert_eq!(guard.lost().await, LossReason::Unreachable);
            proxy.heal();
            // This command may be the first to notice the silent connection.
            let error = guard.unlock().await.unwrap_err();
            assert!(error.is_not_held() || error.is_release_pending(), "{error:?}");
            theirs.ensure_held().await.unwrap();
            theirs.unlock().await.unwrap();
            continue;
        }
        if matches!(fault, Fault::Silence(_)) {
            // A newcomer gets in after the end of the position, and not before.
            let guard =
                within(fault.lasts() + LITTLE, "the newcomer's turn", lock(&holder).lock()).await.unwrap();
            proxy.heal();
            until_queued(&day.server, 1).await;
            guard.ensure_held().await.unwrap();
            guard.unlock().await.unwrap();
        }
        serve(LIFE + LITTLE, "its turn", cut_off).await;
    }
    end(day, &[&holder, &client]).await;
}

macro_rules! faults {
    (of $test:ident: $($name:ident: $fault:expr;)*) => {
        mod $test {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$test($fault).await;
                }
            )*
        }
    };
    ($($name:ident: $fault:expr;)*) => {
        faults! { of both_have_their_turn: $($name: $fault;)* }
        faults! { of alone_it_has_its_turn: $($name: $fault;)* }
    };
}

faults! {
    with_links_that_are_closed: Fault::Cut(Cut::Close);
    with_links_that_are_reset: Fault::Cut(Cut::Reset);
    with_its_subscription_cut: Fault::CutSubscriptions;
    with_its_commands_cut: Fault::CutCommands;
    with_silence_both_ways: Fault::Silence(&[Way::ToServer, Way::ToClient]);
    with_silence_to_the_server: Fault::Silence(&[Way::ToServer]);
    with_silence_from_the_server: Fault::Silence(&[Way::ToClient]);
    with_messages_that_do_not_come: Fault::SilentSubscriptions;
    with_commands_that_go_nowhere: Fault::SilentCommands;
}
