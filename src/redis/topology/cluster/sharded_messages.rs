//! [`ShardedMessages`].

/// Which kind of messages tells the waiters of a Cluster that a lock is free.
///
/// All clients that share a lock have to agree, Redisson's included: a message of one kind is not heard by
/// subscribers of the other, and then each waiter sleeps until the lease that it waits for has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardedMessages {
    /// Redisson's own rule: sharded ones if the server knows them, which Redis does since 7.0.
    #[default]
    Auto,
    /// Sharded ones (`SPUBLISH`): each goes to the node that has the lock, and from there to its subscribers.
    On,
    /// Plain ones (`PUBLISH`): each goes to every node of the Cluster. As clients of Redisson before 3.22 do.
    Off,
}
