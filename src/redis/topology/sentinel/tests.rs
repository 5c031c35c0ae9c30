//! Tests with fake Sentinels and servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::support::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::super::super::connection::{
    BackOff, Boxed, Common, ConnectOptions, Credentials, Dialer, ErrorKind, Meaning, OwnedTask, Push, Server,
    Timing,
};
use super::super::super::fake::{EVENT_LIMIT, Fake, bulk, push};
use super::follow::{follow, listen};
use super::shared::Shared;
use super::url;
use crate::support::runtime::TokioRuntime;

const UNKNOWN: &str = "*-1\r\n";

const NEVER: Duration = Duration::from_secs(3600);

async fn server(role: &'static str) -> Fake {
    Fake::start(move |_| format!("*1\r\n{}", bulk(role))).await
}

async fn sentinel(says: impl Fn() -> String + Send + Sync + 'static) -> Fake {
    let subscribed = push("subscribe", "+switch-master");
    Fake::start(move |asked| if asked.starts_with("SENTINEL") { says() } else { subscribed.clone() }).await
}

fn at(port: u16) -> String {
    format!("*2\r\n{}{}", bulk("127.0.0.1"), bulk(&port.to_string()))
}

fn switched(port: u16) -> String {
    let message = format!("mymaster 127.0.0.1 9 127.0.0.1 {port}");
    [">3\r\n".to_owned(), bulk("message"), bulk("+switch-master"), bulk(&message)].concat()
}

fn common(heartbeat: Duration) -> Arc<Common> {
    Arc::new(Common::new(Timing { heartbeat, ..Timing::default() }, TokioRuntime::current()))
}

fn url_of(sentinels: &[u16]) -> String {
    let hosts: Vec<String> = sentinels.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redis+sentinel://{}/mymaster", hosts.join(","))
}

fn shared_over(common: &Arc<Common>, sentinels: &[u16]) -> Arc<Shared> {
    let url = url::parse(&url_of(sentinels), false).unwrap();
    let dialer = |info| Dialer::plain(info, common);
    let sentinels = url.sentinels.into_iter().map(dialer).collect();
    Arc::new(Shared::new(url.master.into(), sentinels, dialer(url.server)))
}

/// Without a follower, whose questions would add to the test's.
fn shared(sentinels: &[u16]) -> Arc<Shared> {
    shared_over(&common(NEVER), sentinels)
}

fn unfollowed(sentinels: &[u16]) -> super::Sentinels {
    let idle = OwnedTask::spawn(&TokioRuntime::current(), std::future::ready(()));
    super::Sentinels { shared: shared(sentinels), _follower: idle }
}

fn followed(heartbeat: Duration, sentinels: &[u16]) -> Arc<Shared> {
    let common = common(heartbeat);
    let shared = shared_over(&common, sentinels);
    tokio::spawn(follow(Arc::clone(&shared), common));
    shared
}

fn deaf() -> Push {
    Arc::new(|_| {})
}

fn known(shared: &Shared) -> Option<Arc<str>> {
    shared.known.borrow().clone()
}

async fn until_known(shared: &Shared) {
    timeout(EVENT_LIMIT, shared.known.subscribe().wait_for(Option::is_some))
        .await
        .expect("not learnt")
        .unwrap();
}

// === Asking ===

#[tokio::test]
async fn last_right_sentinel_is_asked_before_the_others_of_the_url() {
    let master = server("master").await;
    let port = master.port;
    let [first, second] = [sentinel(|| UNKNOWN.to_owned()).await, sentinel(move || at(port)).await];
    let shared = shared(&[first.port, second.port, 1]);
    assert_eq!(shared.in_turn().collect::<Vec<_>>(), [0, 1, 2]);
    for asked in 1..=2 {
        let (address, _) = shared.find(&deaf()).await.unwrap();
        assert_eq!(*address, *format!("127.0.0.1:{port}"));
        assert_eq!((first.count("SENTINEL"), second.count("SENTINEL")), (1, asked));
    }
    assert_eq!(shared.in_turn().collect::<Vec<_>>(), [1, 2, 0]);
}

#[tokio::test]
async fn server_that_several_sentinels_name_in_vain_is_tried_once() {
    let [replica, master] = [server("slave").await, server("master").await];
    let [wrong, right] = [replica.port, master.port];
    let [first, second] = [sentinel(move || at(wrong)).await, sentinel(move || at(wrong)).await];
    let third = sentinel(move || at(right)).await;
    let (address, _) = shared(&[first.port, second.port, third.port]).find(&deaf()).await.unwrap();
    assert_eq!(*address, *format!("127.0.0.1:{right}"));
    assert_eq!((second.count("SENTINEL"), replica.count("ROLE")), (1, 1));

    let Err(error) = shared(&[first.port, second.port]).find(&deaf()).await else { panic!("found") };
    assert_eq!(error.kind(), ErrorKind::NotMaster);
}

#[tokio::test]
async fn master_unknown_to_the_only_answering_sentinel_is_unknown() {
    let knows_nothing = sentinel(|| UNKNOWN.to_owned()).await;
    for sentinels in [[1, knows_nothing.port], [knows_nothing.port, 1]] {
        let Err(error) = shared(&sentinels).find(&deaf()).await else { panic!("found") };
        assert_eq!(error.kind(), ErrorKind::UnknownMaster, "{error}");
    }
}

#[tokio::test]
async fn address_is_learnt_if_it_is_another_and_newer() {
    let shared = shared(&[1]);
    let (one, other) = (Arc::from("one:1"), Arc::from("other:1"));
    let mut news = shared.known.subscribe();
    shared.learn(&one, |_| false);
    assert_eq!((known(&shared), news.has_changed().unwrap()), (None, false));
    shared.learn(&one, |known| known.is_none());
    assert_eq!(news.borrow_and_update().as_ref(), Some(&one));
    shared.learn(&one, |_| true);
    assert!(!news.has_changed().unwrap(), "expected no change for the other connections");
    shared.learn(&other, |_| true);
    assert_eq!(news.borrow_and_update().as_ref(), Some(&other));
}

// === Being connected ===

/// Sentinels may refuse the follower, which connecting does not need.
#[tokio::test]
async fn master_is_connected_to_unfollowed() {
    let master = server("master").await;
    let port = master.port;
    let sentinel = sentinel(move || at(port)).await;
    let sentinels = unfollowed(&[sentinel.port]);
    assert_eq!(&*sentinels.address(), "mymaster");
    let (_, standing) = timeout(EVENT_LIMIT, sentinels.dial(deaf())).await.expect("without end").unwrap();
    assert!(!standing.has_ended());
    assert_eq!(*sentinels.address(), *format!("127.0.0.1:{port}"));
}

#[tokio::test]
async fn heartbeat_tells_the_master_from_one_that_was_made_a_replica() {
    let is_master = Arc::new(AtomicBool::new(true));
    let master = Fake::start({
        let is_master = Arc::clone(&is_master);
        // Ordering: Relaxed, the connection orders both accesses.
        move |_| {
            if is_master.load(Ordering::Relaxed) { "*1\r\n+master\r\n" } else { "*1\r\n+slave\r\n" }
                .to_owned()
        }
    })
    .await;
    let port = master.port;
    let sentinel = sentinel(move || at(port)).await;
    let sentinels = unfollowed(&[sentinel.port]);
    let (mut connection, _) = timeout(EVENT_LIMIT, sentinels.dial(deaf())).await.unwrap().unwrap();
    sentinels.heartbeat(&mut connection).await.unwrap();
    // Ordering: Relaxed, as above.
    is_master.store(false, Ordering::Relaxed);
    let error = sentinels.heartbeat(&mut connection).await.unwrap_err();
    assert_eq!(Meaning::of(&error), Meaning::NotServing);
}

#[tokio::test]
async fn master_that_turns_out_to_be_none_is_left_by_all_and_once() {
    let sentinels = unfollowed(&[1]);
    sentinels.shared.learn(&Arc::from("one:1"), |_| true);
    let (standing, other) = (sentinels.epoch(), sentinels.epoch());
    sentinels.invalidate(&standing);
    assert!(standing.has_ended() && other.has_ended());
    assert_eq!(known(&sentinels.shared), None);
    sentinels.shared.learn(&Arc::from("other:1"), |_| true);
    sentinels.invalidate(&other);
    assert_eq!(known(&sentinels.shared).as_deref(), Some("other:1"));
}

#[tokio::test]
async fn servers_credentials_and_name_are_not_sent_to_sentinels() {
    let master = server("master").await;
    let port = master.port;
    let sentinel = sentinel(move || at(port)).await;
    let name = Some("a-service".to_owned());
    let of_url = ConnectOptions { name: name.clone(), ..ConnectOptions::default() };
    let instead = (Some("locker".to_owned()), Some("hunter2".to_owned()));
    let apart = ConnectOptions { instead, ..ConnectOptions::default() };
    let callback = || -> Boxed<'static, _> { Box::pin(async { Ok(Credentials::new("locker", "hunter2")) }) };
    let asked_for = ConnectOptions { credentials: Some(Arc::new(callback)), ..ConnectOptions::default() };
    for (introduction, tells) in [
        (of_url, "CLIENT SETNAME a-service"),
        (apart, "HELLO 3 AUTH locker hunter2"),
        (asked_for, "HELLO 3 AUTH locker hunter2"),
    ] {
        let before = master.count(tells);
        super::connect(&url_of(&[sentinel.port]), introduction, &common(NEVER)).await.unwrap();
        assert!(master.count(tells) > before, "{tells}");
        assert_eq!(sentinel.count(tells), 0, "{tells}");
    }
}

// === Following ===

const HEARTBEAT: Duration = Duration::from_millis(40);

#[tokio::test]
async fn answering_sentinel_is_asked_at_its_pace_by_one_subscription() {
    let [one, other] = [sentinel(|| at(1)).await, sentinel(|| at(1)).await];
    let began = Instant::now();
    followed(HEARTBEAT, &[one.port, other.port]);
    one.until("SENTINEL", 4).await;
    assert!(
        began.elapsed() >= 3 * HEARTBEAT * 3 / 4,
        "expected four questions over three heartbeats, and they took {:?}",
        began.elapsed()
    );
    assert_eq!((one.count("SUBSCRIBE"), other.count("")), (1, 0));
}

#[tokio::test]
async fn sentinel_that_has_stood_is_come_back_to_sooner() {
    let common = common(HEARTBEAT);
    for (answers, next) in [(1, 500), (2, 10)] {
        let asked = AtomicUsize::new(0);
        // Ordering: Relaxed, a count.
        let says =
            move || if asked.fetch_add(1, Ordering::Relaxed) < answers { at(1) } else { UNKNOWN.to_owned() };
        let sentinel = sentinel(says).await;
        let mut back_off = BackOff::default();
        for _ in 0..10 {
            back_off.next(0);
        }
        let (shared, mut stood) = (shared_over(&common, &[sentinel.port]), false);
        let listens = listen(&shared, 0, &common, &mut back_off, &mut stood);
        let error = timeout(EVENT_LIMIT, listens).await.unwrap().unwrap_err();
        assert!(stood);
        assert_eq!(error.kind(), ErrorKind::UnknownMaster, "{error}");
        assert_eq!(back_off.next(0), Duration::from_millis(next), "after {answers}");
    }
}

#[tokio::test]
async fn sentinel_behind_one_that_is_gone_is_followed_for_good() {
    let sentinel = sentinel(|| at(1)).await;
    let shared = followed(HEARTBEAT, &[1, sentinel.port]);
    sentinel.until("SENTINEL", 4).await;
    assert_eq!(sentinel.count("SUBSCRIBE"), 1);
    assert_eq!(shared.in_turn().next(), Some(1));
}

/// A pause for each would delay news of a failover by at least twelve seconds.
#[tokio::test]
async fn sentinels_that_are_gone_are_passed_at_once() {
    let sentinel = sentinel(|| at(1)).await;
    let (gone, began) = ([1; 30], Instant::now());
    followed(NEVER, &[&gone[..], &[sentinel.port]].concat());
    sentinel.until("SUBSCRIBE", 1).await;
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
}

#[tokio::test]
async fn sentinels_that_know_nothing_are_left_for_the_next_one_calmly() {
    let mut sentinels = Vec::new();
    for _ in 0..5 {
        sentinels.push(sentinel(|| UNKNOWN.to_owned()).await);
    }
    let began = Instant::now();
    followed(NEVER, &sentinels.iter().map(|sentinel| sentinel.port).collect::<Vec<_>>());
    sentinels[4].until("SENTINEL", 1).await;
    // The least sum of the pauses, which double.
    assert!(began.elapsed() >= Duration::from_millis(10 + 20 + 40 + 80), "{:?}", began.elapsed());
}

#[tokio::test]
async fn sentinel_without_a_subscription_is_left_for_the_next_one() {
    let says_no = |_: &str| "-NOPERM this user has no permissions\r\n".to_owned();
    let [one, other] = [Fake::start(says_no).await, sentinel(|| at(1)).await];
    followed(NEVER, &[one.port, other.port]);
    other.until("SENTINEL", 1).await;
    assert_eq!(one.count("SENTINEL"), 0);
}

#[tokio::test]
async fn sentinel_that_is_preferred_is_gone_over_to() {
    let [one, other] = [sentinel(|| at(1)).await, sentinel(|| at(1)).await];
    let shared = followed(HEARTBEAT, &[one.port, other.port]);
    one.until("SENTINEL", 2).await;
    shared.prefer(1);
    other.until("SENTINEL", 2).await;
}

/// A message may be missed before the next question.
#[tokio::test]
async fn subscription_that_breaks_is_made_anew_at_once() {
    let sentinel = sentinel(|| at(1)).await;
    until_known(&followed(NEVER, &[sentinel.port])).await;
    sentinel.cut();
    sentinel.until("SUBSCRIBE", 2).await;
}

/// A Sentinel may send both while learning of a failover.
#[tokio::test]
async fn message_is_newer_than_an_answer_that_was_on_its_way() {
    let asked = AtomicUsize::new(0);
    // Ordering: Relaxed, a count.
    let sentinel = sentinel(move || match asked.fetch_add(1, Ordering::Relaxed) {
        0 => at(1),
        1 => switched(2) + &at(1),
        2 => at(3),
        _ => at(4),
    })
    .await;
    let shared = followed(HEARTBEAT, &[sentinel.port]);
    let mut learnt = Vec::new();
    let mut news = shared.known.subscribe();
    while learnt.len() < 3 {
        timeout(EVENT_LIMIT, news.changed()).await.expect("nothing is learnt").unwrap();
        learnt.extend(news.borrow_and_update().clone());
    }
    assert_eq!(
        learnt.iter().map(|at| &**at).collect::<Vec<_>>(),
        ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]
    );
}
