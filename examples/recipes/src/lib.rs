//! Shared by the recipes: a Redis server. All other code is in each recipe's file, to be copied.

use std::env;

use latchwork_testkit::RedisServer;

/// A Redis server: the one at `REDIS_URL`, or one of this process's own, which ends with it.
#[derive(Debug)]
pub struct Redis {
    url: String,
    _own: Option<RedisServer>,
}

impl Redis {
    /// Starts a server, unless `REDIS_URL` names one. Panics if no server can be started.
    pub fn start() -> Redis {
        match env::var("REDIS_URL") {
            Ok(url) => Redis { url, _own: None },
            Err(_) => {
                let own = RedisServer::start();
                Redis { url: own.url(), _own: Some(own) }
            }
        }
    }

    /// The server's URL.
    pub fn url(&self) -> &str {
        &self.url
    }
}
