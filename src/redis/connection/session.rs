//! [`Session`]: how the server calls a connection, so that it can be ended from another one.

use ::redis::{RedisError, RedisResult, cmd};

use super::error::is_broken;
use super::multiplexed::MultiplexedConnection;

/// How the server calls a connection. Both parts are needed: another server, or this one after a restart,
/// counts from one again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    id: String,
    address: String,
}

impl Session {
    /// `None`: the server does not say, as before 6.2, or not to this user.
    pub(crate) async fn of(connection: &mut MultiplexedConnection) -> RedisResult<Option<Self>> {
        let info: String = match cmd("CLIENT").arg("INFO").query_async(connection).await {
            Ok(info) => info,
            Err(error) if is_broken(&error) => return Err(error),
            Err(_) => return Ok(None),
        };
        let field = |name| info.split(' ').find_map(|field| field.strip_prefix(name)).map(str::to_owned);
        Ok(field("id=").zip(field("addr=")).map(|(id, address)| Self { id, address }))
    }

    /// Has the server end it: from then on nothing that was sent over it runs any more. The inner error: the
    /// server refuses.
    pub(crate) async fn end(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> RedisResult<Result<(), RedisError>> {
        let mut kill = cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(&self.id).arg("ADDR").arg(&self.address);
        match kill.query_async::<usize>(connection).await {
            Ok(_) => Ok(Ok(())),
            Err(error) if is_broken(&error) => Err(error),
            Err(refusal) => Ok(Err(refusal)),
        }
    }
}
