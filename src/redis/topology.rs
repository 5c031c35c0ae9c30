//! The connection for each key and channel.
//!
//! | topology | servers | changes when |
//! |---|---|---|
//! | `single` at a fixed address | the URL's server | the server refuses commands, and its name has moved |
//! | `single` with `sentinel` | the current master | the Sentinels or the server report a change |
//! | `cluster` | one master for each slot | slots move, masters fail |

#[cfg(feature = "cluster")]
pub(crate) mod cluster;
mod router;
#[cfg(feature = "sentinel")]
mod sentinel;
mod single;
mod url;

use std::sync::Arc;

#[cfg(not(all(feature = "sentinel", feature = "cluster")))]
use super::connection::ErrorKind;
use super::connection::{Common, ConnectOptions, Error};

pub(crate) use self::router::{Node, Router, Topology};

#[derive(Clone, Default)]
pub(crate) struct Options {
    /// True if some commands block others, and get connections of their own.
    pub(crate) own_connections: bool,
    #[cfg(feature = "cluster")]
    pub(crate) sharded_messages: cluster::ShardedMessages,
}

pub(crate) async fn connect(
    url: &str,
    introduction: ConnectOptions,
    _options: Options,
    common: &Arc<Common>,
) -> Result<Arc<dyn Topology>, Error> {
    match url::Names::of(url) {
        // Several connections to a node have no common order, and WAIT needs that order.
        #[cfg(feature = "cluster")]
        url::Names::Cluster if _options.own_connections => {
            Err(Error::url("wait_for_replicas is for one server with its replicas, and not for a Cluster"))
        }
        url::Names::Server => single::connect(url, introduction, common).await,
        #[cfg(feature = "sentinel")]
        url::Names::Sentinels => sentinel::connect(url, introduction, common).await,
        #[cfg(feature = "cluster")]
        url::Names::Cluster => cluster::connect(url, introduction, _options.sharded_messages, common).await,
        #[cfg(not(feature = "sentinel"))]
        url::Names::Sentinels => {
            Err(Error::not_built_in(ErrorKind::SentinelNotBuiltIn, "names Sentinels", "sentinel"))
        }
        #[cfg(not(feature = "cluster"))]
        url::Names::Cluster => {
            Err(Error::not_built_in(ErrorKind::ClusterNotBuiltIn, "names a Cluster", "cluster"))
        }
    }
}
