//! [`Route`]: which server a command goes to.

use std::fmt;
use std::time::Duration;

use ::redis::FromRedisValue;

#[cfg(feature = "cluster")]
use super::cluster::Cluster;
#[cfg(feature = "cluster")]
use super::commands::Request;
use super::commands::{Commands, Sent};
use super::error::Error;
use super::scripts::Script;

/// Which server a command goes to.
#[allow(clippy::large_enum_variant, reason = "there is one to a client")]
pub(super) enum Route {
    /// There is only one.
    Server(Commands),
    /// The one that has the slot of the command's first key.
    #[cfg(feature = "cluster")]
    Cluster(Cluster),
}

impl Route {
    /// See [`Commands::eval`].
    pub(super) async fn eval<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[&str],
        args: &[&str],
    ) -> Result<(T, Sent), Error> {
        match self {
            Self::Server(commands) => commands.eval(script, keys, args).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.run(true, Request::Script { script, keys, args }).await,
        }
    }

    /// See [`Commands::eval_within`].
    pub(super) async fn eval_within<T: FromRedisValue>(
        &self,
        limit: Duration,
        script: &Script,
        keys: &[&str],
        args: &[&str],
    ) -> Result<(T, Sent), Error> {
        match self {
            Self::Server(commands) => commands.eval_within(limit, script, keys, args).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => {
                cluster.run_within(limit, true, Request::Script { script, keys, args }).await
            }
        }
    }

    /// See [`Commands::eval_once`].
    pub(super) async fn eval_once<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[&str],
        args: &[&str],
    ) -> Result<T, Error> {
        match self {
            Self::Server(commands) => commands.eval_once(script, keys, args).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => Ok(cluster.run(false, Request::Script { script, keys, args }).await?.0),
        }
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(commands) => commands.fmt(f),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.fmt(f),
        }
    }
}
