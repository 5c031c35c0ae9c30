//! The client's type does not depend on the store, and one error type covers all failures.

use latchwork::backend::Backend as _;
use latchwork::local::Local;
use latchwork::lock::Mode;
use latchwork::redis::Redis;
use latchwork::{LockClient, LockError};
use latchwork_testkit::RedisServer;

/// A program's struct, without a type parameter.
struct Orders {
    locks: LockClient,
}

impl Orders {
    async fn new(url: Option<&str>) -> Result<Self, latchwork::redis::Error> {
        let locks = if let Some(url) = url {
            LockClient::new(Redis::connect(url).await?)
        } else {
            LockClient::local()
        };
        Ok(Self { locks })
    }

    async fn ship(&self) -> Result<(), LockError> {
        self.locks.get_lock("orders:plain")?.lock().await?.unlock().await?;
        self.locks.get_fair_lock("orders:fair")?.lock().await?.unlock().await?;
        let both = self.locks.get_read_write_lock("orders:both")?;
        both.read().lock().await?.unlock().await?;
        both.write().lock().await?.unlock().await
    }
}

/// With half an id, two of four billion clients would collide.
#[test]
fn each_half_of_a_clients_id_is_drawn() {
    let ids = [(); 2].map(|()| LockClient::local().id().to_owned());
    // Of 36 characters, 60 random bits before the variant and 60 bits after.
    assert_ne!(ids[0][..18], ids[1][..18]);
    assert_ne!(ids[0][20..], ids[1][20..]);
}

mod needs_a_server {
    use super::*;

    #[tokio::test]
    async fn struct_without_a_parameter_holds_a_client_of_either_store() {
        let server = RedisServer::start();
        let (in_memory, on_server) =
            (Orders::new(None).await.unwrap(), Orders::new(Some(&server.url())).await.unwrap());
        for orders in [&in_memory, &on_server] {
            orders.ship().await.unwrap();
            assert_eq!(orders.locks.metrics().waits.count(), 4);
            assert!(orders.locks.registry().is_empty());
        }
        assert!(in_memory.locks.backend::<Local>().is_some_and(|local| local.supports(Mode::Fair)));
        assert!(in_memory.locks.backend::<Redis>().is_none());
        assert!(on_server.locks.backend::<Redis>().is_some());
        assert!(on_server.locks.backend::<Local>().is_none());
    }
}
