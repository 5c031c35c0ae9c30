//! Which connection a key or a channel goes to.
//!
//! | topology | its servers | it changes when |
//! |---|---|---|
//! | `single` on a server at a fixed address | the one that the URL names | the name leads to another one; then the old one says that it serves no commands |
//! | `single` on the master that `sentinel` finds | one at a time | the Sentinels say so, or the server does |
//! | `cluster` | one master for each slot | slots move, masters fail |

#[cfg(feature = "cluster")]
pub(crate) mod cluster;
mod contract;
mod router;
#[cfg(feature = "sentinel")]
mod sentinel;
mod single;
mod url;

use std::sync::Arc;

use super::connection::{Common, ConnectOptions, Error};

pub(crate) use self::contract::{Messages, Node, Topology};
pub(crate) use self::router::{Router, Sent};

/// What is asked for besides the URL.
#[derive(Clone, Default)]
pub(crate) struct Options {
    /// Some commands keep others waiting, and are to have connections of their own.
    pub(crate) own_connections: bool,
    #[cfg(feature = "cluster")]
    pub(crate) sharded_messages: cluster::ShardedMessages,
}

/// Finds out what `url` names, and connects to it.
pub(crate) async fn connect(
    url: &str,
    introduction: ConnectOptions,
    _options: Options,
    common: &Arc<Common>,
) -> Result<Arc<dyn Topology>, Error> {
    match url::Names::of(url) {
        // There is no order between what goes over several connections to a node, and no WAIT without one.
        #[cfg(feature = "cluster")]
        url::Names::Cluster if _options.own_connections => Err(Error::no_wait_in_a_cluster()),
        url::Names::Server => single::Single::connect(url, introduction, common).await,
        #[cfg(feature = "sentinel")]
        url::Names::Sentinels => sentinel::connect(url, introduction, common).await,
        #[cfg(feature = "cluster")]
        url::Names::Cluster => cluster::connect(url, introduction, _options.sharded_messages, common).await,
        #[cfg(not(all(feature = "sentinel", feature = "cluster")))]
        names => Err(names.not_built_in()),
    }
}
