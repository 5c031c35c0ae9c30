//! ```sh
//! cargo add latchwork --features redis
//! cargo add tokio --features full
//! ```

use latchwork::LockClient;
use latchwork::redis::Redis;

#[tokio::main]
async fn main() {
    //~ is not a store of locks
    //~ expected a `Backend`, such as `Redis` or `Local`
    //~ await a connection and take its value
    _ = LockClient::new(Redis::connect("redis://127.0.0.1"));
}
