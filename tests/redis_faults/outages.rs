//! Outages of every kind, with default options and long leases: no lease is lost that outlasts the outage, no
//! waiter sleeps beside a free lock afterwards, and the clients dial calmly meanwhile.

use std::time::{Duration, Instant};

use crate::by_hand::{self, client};
use crate::day::refusing_server;
use latchwork::backend::Failure;
use latchwork::{Guard, LockClient, LockError};
use latchwork_testkit::{ChaosProxy, Cut, RedisServer, Way};
use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const SOON: Duration = Duration::from_secs(12);
crate::waiting::waiting_for!(SOON);
/// Time until the effects of an outage are over: a pause between two dials, the spread of a silent server's
/// clients, and a margin for a busy machine.
const AFTERWARDS: Duration = Duration::from_secs(4);
/// Longer than the time between two renewals, and shorter than the rest of a lease at a renewal.
const LONG: Duration = Duration::from_secs(13);
const RETRY_DELAY: Duration = Duration::from_millis(100);
const HOUR: Duration = Duration::from_secs(3600);

/// A server, the way to it, and a connection from before the outage.
struct Scene {
    server: RedisServer,
    proxy: ChaosProxy,
    admin: MultiplexedConnection,
}

impl Scene {
    async fn set() -> Self {
        let server = RedisServer::start();
        let admin = by_hand::connection(&server).await;
        Self { proxy: ChaosProxy::start(server.port()), server, admin }
    }

    async fn run<T: FromRedisValue>(&mut self, command: &str) -> T {
        by_hand::command(command).query_async(&mut self.admin).await.unwrap()
    }

    async fn waiter(&mut self, client: &LockClient, name: &str) -> JoinHandle<Result<Guard, LockError>> {
        let lock = client.get_lock(name).unwrap();
        let waiter = tokio::spawn(async move {
            loop {
                match lock.lock().await {
                    // A refusal ends the wait, whose client asks by timer, too.
                    Err(LockError::Backend { failure: Failure::Refused, .. }) => sleep(RETRY_DELAY).await,
                    outcome => return outcome,
                }
            }
        });
        let channel = by_hand::call_channel(client, name);
        eventually("the subscription", async || by_hand::subscribers(&self.server, &channel).await == 1)
            .await;
        waiter
    }

    async fn outlast(
        mut self,
        length: Duration,
        begin: impl AsyncFnOnce(&mut Self),
        end: impl AsyncFnOnce(&mut Self),
    ) {
        let (ours, theirs) = (client(&self.proxy.url()).await, client(&self.proxy.url()).await);
        let held = ours.get_lock("held").unwrap().lock().await.unwrap();
        let dropped = ours.get_lock("dropped").unwrap().lock_with_lease(HOUR).await.unwrap();
        let unlocked = ours.get_lock("unlocked").unwrap().lock_with_lease(HOUR).await.unwrap();
        let (mut waiters, before) = (Vec::new(), by_hand::calls(&self.server, "evalsha").await);
        for name in ["dropped", "unlocked"] {
            waiters.push(self.waiter(&theirs, name).await);
        }
        let last = self.waiter(&theirs, "held").await;
        // Each waiter asks before and after subscribing. An attempt during the outage may fail.
        eventually("their questions", async || by_hand::calls(&self.server, "evalsha").await >= before + 6)
            .await;

        let dials = self.proxy.arrivals().len();
        begin(&mut self).await;
        drop(dropped);
        let unlocks = tokio::spawn(unlocked.unlock());
        sleep(length).await;
        assert!(held.is_held(), "{:?}", held.lost().await);
        // Four connections, each dialled at its calmest after the first few.
        let dialled = self.proxy.arrivals().len() - dials;
        assert!(dialled <= 4 * (6 + 2 * length.as_secs() as usize), "{dialled} dials");
        // The unlock returns within the limit of a command, and an unfinished release is repeated.
        let _ = timeout(SOON, unlocks).await.expect("the unlock ends").unwrap();
        end(&mut self).await;

        for waiter in waiters {
            let guard =
                timeout(AFTERWARDS, waiter).await.expect("asleep beside a free lock").unwrap().unwrap();
            guard.unlock().await.unwrap();
        }
        let begun = Instant::now();
        // This command may be the first to notice the broken connection, and is then repeated.
        held.unlock().await.unwrap();
        timeout(AFTERWARDS, last).await.expect("asleep").unwrap().unwrap().unlock().await.unwrap();
        assert!(begun.elapsed() < AFTERWARDS, "{:?}", begun.elapsed());
        eventually("nothing left", async || self.run::<usize>("DBSIZE").await == 0).await;
    }
}

async fn of_refused_connections(length: Duration) {
    let scene = Scene::set().await;
    let (port, gone) = (scene.server.port(), refusing_server());
    let begin = async |scene: &mut Scene| {
        scene.proxy.lead_to(gone.port());
        scene.proxy.cut(Cut::Reset);
    };
    scene.outlast(length, begin, async |scene: &mut Scene| scene.proxy.lead_to(port)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_outlast_a_server_that_refuses_connections() {
    tokio::join!(of_refused_connections(Duration::from_millis(300)), of_refused_connections(LONG));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_outlast_a_stalled_server() {
    let scene = Scene::set().await;
    let begin = async |scene: &mut Scene| scene.server.pause();
    scene.outlast(LONG, begin, async |scene: &mut Scene| scene.server.resume()).await;
}

async fn of_silence(ways: &[Way]) {
    let begin = async |scene: &mut Scene| ways.iter().for_each(|way| scene.proxy.silence(*way));
    Scene::set().await.outlast(LONG, begin, async |scene: &mut Scene| scene.proxy.heal()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_outlast_links_silent_one_way_or_both() {
    let ways = [Way::ToServer, Way::ToClient];
    tokio::join!(of_silence(&ways[..1]), of_silence(&ways[1..]), of_silence(&ways));
}

async fn of_setting(on: &str, off: &str) {
    let set = async |scene: &mut Scene| scene.run(on).await;
    Scene::set().await.outlast(LONG, set, async |scene: &mut Scene| scene.run(off).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_outlast_a_server_that_answers_and_refuses() {
    tokio::join!(
        of_setting("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
        of_setting("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
        of_setting("CLIENT PAUSE 60000 WRITE", "CLIENT UNPAUSE"),
        of_setting("ACL SETUSER default -evalsha -eval", "ACL SETUSER default +evalsha +eval"),
    );
}

/// From the first renewal on, for ten seconds, each renewal sent is followed by a cut of the link.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_leases_outlast_cuts_of_the_link_of_renewals() {
    const LOCKS: usize = 1100;
    let mut scene = Scene::set().await;
    let client = client(&scene.proxy.url()).await;
    let mut guards = Vec::new();
    for number in 0..LOCKS {
        guards.push(client.get_lock(&format!("many:{number}")).unwrap().lock().await.unwrap());
    }
    let taken = Instant::now();
    let mut cuts = 0;
    while taken.elapsed() < Duration::from_secs(20) {
        let sent = scene.proxy.count("EVAL");
        sleep(Duration::from_millis(1)).await;
        if scene.proxy.count("EVAL") > sent {
            scene.proxy.cut(Cut::Reset);
            cuts += 1;
        }
    }
    assert!(cuts >= 5, "{cuts} cuts");
    // A hold without renewals would be lost by now.
    sleep(Duration::from_secs(31).saturating_sub(taken.elapsed())).await;
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    assert_eq!(lost, 0, "of {LOCKS}");
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    assert_eq!(scene.run::<usize>("DBSIZE").await, 0);
}
