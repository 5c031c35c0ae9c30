//! What the recipes share: a Redis server. All else is in the file of each, so that it can be copied.

use std::env;

use latchwork_testkit::RedisServer;

/// A Redis server to run against: the one at `REDIS_URL`, or one of this process's own, which ends with it.
#[derive(Debug)]
pub struct Redis {
    url: String,
    _own: Option<RedisServer>,
}

impl Redis {
    /// Starts a server, unless `REDIS_URL` names one.
    ///
    /// # Panics
    ///
    /// If `REDIS_URL` is not set, and there is no server to start.
    pub fn start() -> Redis {
        match env::var("REDIS_URL") {
            Ok(url) => Redis { url, _own: None },
            Err(_) => {
                let own = RedisServer::start();
                Redis { url: own.url(), _own: Some(own) }
            }
        }
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }
}
