//! What goes wrong in a Cluster only.

use super::super::super::connection::{Error, ErrorKind};

impl Error {
    pub(crate) fn database_of_cluster() -> Self {
        Self::url("a Cluster has no database but 0; leave the database out")
    }

    pub(crate) fn not_a_cluster(&self, address: &str) -> Self {
        let context = format!(
            "Redis at {address} is not a Cluster; write redis:// instead of redis-cluster://, or start it with \
             cluster-enabled yes"
        );
        Self::new(ErrorKind::NotACluster, context, self.redis_error().cloned())
    }

    /// No node could say which node has which slot.
    pub(crate) fn no_node() -> Self {
        Self::no_connection("no node of the Cluster answers; write more of them into its URL".into())
    }

    pub(crate) fn no_slots(address: &str) -> Self {
        Self::no_connection(format!(
            "Redis at {address} knows of no Cluster's slots; it has left its Cluster or was never in one"
        ))
    }

    fn no_connection(context: String) -> Self {
        Self::new(ErrorKind::Connection, context, None)
    }

    pub(crate) fn no_wait_in_a_cluster() -> Self {
        let context =
            "wait_for_replicas is for one server with its replicas, and not for a Cluster; leave it out";
        Self::new(ErrorKind::Url, context.into(), None)
    }
}
