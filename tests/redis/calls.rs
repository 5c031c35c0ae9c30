//! The clients that a release of a plain lock calls.

use std::time::Duration;

use latchwork::LeaseId;
use latchwork::backend::{AcquireOutcome, Backend as _, LockName, Mode, QueuePosition};
use latchwork::redis::Redis;
use latchwork_conformance::commands::Commands as _;
use latchwork_testkit::RedisServer;

use crate::by_hand::run;

const LEASE: Duration = Duration::from_secs(60);

fn client(number: usize) -> String {
    format!("{number:08x}-0795-4907-87fd-6c719a6b4586")
}

/// Dead clients that the server takes for listeners stand before a live one: each is a lost call.
#[tokio::test]
async fn uncalled_holder_has_as_many_called_as_were_before_it() {
    let server = RedisServer::start();
    let redis = Redis::connect(&server.url()).await.unwrap();
    let (name, id): (_, LeaseId) =
        (LockName::new("calls").unwrap(), format!("{}:1", client(1000)).parse().unwrap());
    let mut dead = redis::Client::open(server.url()).unwrap().get_async_pubsub().await.unwrap();
    for number in 0..40 {
        dead.subscribe(format!("calls:latchwork:{{calls}}:call:{}", client(number))).await.unwrap();
    }
    for (before, calls) in [(2, 8), (20, 20), (40, 32)] {
        for number in 0..before {
            let enter = format!("ZADD calls:latchwork:{{calls}}:waiters {} {}:1", number + 1, client(number));
            run::<usize>(&server, &enter).await;
        }
        let position = QueuePosition { waited: Duration::ZERO, kept: LEASE };
        let request = redis.request(&id, LEASE).position(position);
        let () = run(&server, "HSET calls mode lock other:1 1").await;
        let held = redis.acquire(Mode::Plain, &name, &request).await.unwrap();
        assert!(matches!(held, AcquireOutcome::Held { .. }), "{held:?}");
        run::<usize>(&server, "DEL calls").await;
        let taken = redis.acquire(Mode::Plain, &name, &request).await.unwrap();
        assert!(matches!(taken, AcquireOutcome::Acquired { .. }), "{taken:?}");
        redis.release(Mode::Plain, &name, &id, None).await.unwrap();
        let left: usize = run(&server, "ZCARD calls:latchwork:{calls}:waiters").await;
        assert_eq!(left, before.saturating_sub(calls), "expected {calls} of {before} called");
        run::<usize>(&server, "DEL calls:latchwork:{calls}:waiters").await;
    }
}
