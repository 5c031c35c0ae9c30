//! A waiter whose links are cut or silent just before it is granted the lock.

use std::time::Duration;

use latchwork::{Lock, LockClient, LossReason};
use latchwork_testkit::{ChaosProxy, Cut, Way};

use super::kind::sides;
use super::stage::{
    AT_ONCE, Convoy, LEASE, LIFE, LITTLE, Side, end, lock, pairs, proxied, queued, serve, until_queued,
    waiter_of, within,
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
        let clients = [&holder, &first, &second];
        have_their_turn(&day, &fault, &proxy, clients, [&cut_off.lock, &behind.lock]).await;
    }
    end(day, &[&holder, &first, &second]).await;
}

async fn have_their_turn(
    day: &Day,
    fault: &Fault,
    proxy: &ChaosProxy,
    [holder, first, second]: [&LockClient; 3],
    [cut_off, behind]: [&Lock; 2],
) {
    let held = lock(holder).lock().await.unwrap();
    let mut cut_off = waiter_of(first, cut_off).await;
    let mut behind = waiter_of(second, behind).await;
    until_queued(&day.server, 2).await;
    fault.begin(proxy);
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

/// No other waiter: the client gets the lock as soon as it hears again.
async fn alone_it_has_its_turn(fault: Fault) {
    let day = Day::begin();
    let (proxy, client) = proxied(&day.server).await;
    let holder = day.bystander().await;
    for side in sides(&client, NAME) {
        has_its_turn_alone(&day, &fault, &proxy, &holder, &client, &side).await;
    }
    end(day, &[&holder, &client]).await;
}

async fn has_its_turn_alone(
    day: &Day,
    fault: &Fault,
    proxy: &ChaosProxy,
    holder: &LockClient,
    client: &LockClient,
    side: &Side,
) {
    let held = lock(holder).lock().await.unwrap();
    let cut_off = waiter_of(client, &side.lock).await;
    until_queued(&day.server, 1).await;
    fault.begin(proxy);
    held.unlock().await.unwrap();
    // A reader is not granted the lock unasked, so hearing of its turn is not enough.
    if let (Fault::Silence([Way::ToServer]), false) = (fault, side.is_shared) {
        // The waiter hears its grant, and holds the lock until its position ends.
        let guard = within(AT_ONCE, "its turn", cut_off).await.unwrap().unwrap();
        assert!(guard.is_held());
        let theirs = within(LIFE + LITTLE, "the newcomer's turn", lock(holder).lock()).await.unwrap();
        assert!(!guard.is_held(), "expected the former holder to know of its loss");
        assert_eq!(guard.lost().await, LossReason::Unreachable);
        proxy.heal();
        // This command may be the first to notice the silent connection.
        let error = guard.unlock().await.unwrap_err();
        assert!(error.is_not_held() || error.is_release_pending(), "{error:?}");
        theirs.ensure_held().await.unwrap();
        return theirs.unlock().await.unwrap();
    }
    if matches!(fault, Fault::Silence(_)) {
        // A newcomer gets in after the end of the position, and not before.
        let guard = within(fault.lasts() + LITTLE, "the newcomer's turn", lock(holder).lock()).await.unwrap();
        proxy.heal();
        until_queued(&day.server, 1).await;
        guard.ensure_held().await.unwrap();
        guard.unlock().await.unwrap();
    }
    serve(LIFE + LITTLE, "its turn", cut_off).await;
}

async fn convoy_of_proxied(day: &Day, rounds: usize) -> (Vec<ChaosProxy>, Vec<LockClient>, Convoy) {
    let (mut proxies, mut clients) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let (proxy, client) = proxied(&day.server).await;
        proxies.push(proxy);
        clients.push(client);
    }
    let convoy = Convoy::start(&clients, 3, rounds);
    (proxies, clients, convoy)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn convoy_goes_on_over_links_that_are_cut_again_and_again() {
    let day = Day::begin();
    let (proxies, clients, convoy) = convoy_of_proxied(&day, 40).await;
    for round in 0..40 {
        proxies[round % 4].cut(if round % 3 == 0 { Cut::Close } else { Cut::Reset });
        convoy.goes_on(3 + round % 5).await;
    }
    convoy.ends().await;
    end(day, &clients.iter().collect::<Vec<_>>()).await;
}

/// During messages, and during commands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn convoy_goes_on_while_the_server_keeps_ending_connections() {
    let day = Day::begin();
    let (_proxies, clients, convoy) = convoy_of_proxied(&day, 40).await;
    let mut raw = day.connection().await;
    for round in 0..40 {
        for kind in ["pubsub", "normal"] {
            let mut kill = redis::cmd("CLIENT");
            let kill = kill.arg("KILL").arg("TYPE").arg(kind).arg("SKIPME").arg("yes");
            let _: usize = kill.query_async(&mut raw).await.unwrap();
            convoy.goes_on(2 + round % 3).await;
        }
    }
    convoy.ends().await;
    end(day, &clients.iter().collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn convoy_goes_on_over_slow_links_that_send_byte_by_byte() {
    let day = Day::begin();
    let (proxies, clients, convoy) = convoy_of_proxied(&day, 40).await;
    for (number, proxy) in proxies.iter().enumerate() {
        proxy.chop();
        proxy.delay(if number % 2 == 0 { Way::ToClient } else { Way::ToServer }, Duration::from_millis(9));
    }
    convoy.goes_on(100).await;
    proxies.iter().for_each(ChaosProxy::heal);
    convoy.ends().await;
    end(day, &clients.iter().collect::<Vec<_>>()).await;
}

/// One client after the other is silent, for up to two seconds: longer than its links live.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn convoy_goes_on_after_clients_that_fall_silent_in_turns() {
    let day = Day::begin();
    let (proxies, clients, convoy) = convoy_of_proxied(&day, 400).await;
    for (number, way) in [Way::ToServer, Way::ToClient].into_iter().cycle().take(6).enumerate() {
        let proxy = &proxies[number % 4];
        proxy.silence(way);
        // If the silent client holds the lock, no other one goes on.
        tokio::time::sleep(Duration::from_millis(400 * number as u64)).await;
        proxy.heal();
        convoy.goes_on(10).await;
    }
    convoy.ends().await;
    end(day, &clients.iter().collect::<Vec<_>>()).await;
}

macro_rules! faults {
    ($($name:ident: $fault:expr;)*) => {
        mod both_have_their_turn {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::both_have_their_turn($fault).await;
                }
            )*
        }

        mod alone_it_has_its_turn {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::alone_it_has_its_turn($fault).await;
                }
            )*
        }
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
