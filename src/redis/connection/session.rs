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

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session { id: "7".into(), address: "host:1".into() }
    }

    #[tokio::test]
    async fn session_is_what_the_server_says_and_unknown_to_a_user_that_may_not_ask() {
        let of = async |lines: &[&str]| MultiplexedConnection::answered(lines, Session::of).await;
        let (told, sent) = of(&["+id=7 addr=host:1 laddr=host:2 user=default"]).await;
        assert_eq!((told.unwrap(), &*sent), (Some(session()), "CLIENT INFO"));
        assert_eq!(of(&["-NOPERM it has no permissions"]).await.0.unwrap(), None);
        // What has no connection cannot know whether it may ask.
        assert!(of(&[]).await.0.is_err());
    }

    #[tokio::test]
    async fn session_is_ended_by_both_its_parts_and_a_refusal_is_no_broken_connection() {
        let end = async |lines: &[&str]| {
            let end = async |connection: &mut MultiplexedConnection| session().end(connection).await;
            MultiplexedConnection::answered(lines, end).await
        };
        let (told, sent) = end(&[":1"]).await;
        assert!(matches!(told, Ok(Ok(()))), "{told:?}");
        assert_eq!(sent, "CLIENT KILL ID 7 ADDR host:1");
        let told = end(&["-NOPERM it has no permissions"]).await.0;
        assert!(matches!(told, Ok(Err(_))), "{told:?}");
        let told = end(&[]).await.0;
        assert!(told.is_err(), "{told:?}");
    }
}
