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
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::super::runtime::TokioRuntime;
    use super::*;

    /// What `asks` is told by a server that answers one command, and what that command is. No answer: it
    /// breaks off.
    async fn answered<T>(
        answer: Option<&str>,
        asks: impl AsyncFnOnce(&mut MultiplexedConnection) -> T,
    ) -> (T, String) {
        let (ours, mut server) = tokio::io::duplex(1 << 16);
        let mut connection = MultiplexedConnection::over(ours, &TokioRuntime::current()).await;
        let answers = async {
            let mut sent = vec![0; 1 << 16];
            let length = server.read(&mut sent).await.unwrap();
            if let Some(answer) = answer {
                server.write_all(answer.as_bytes()).await.unwrap();
            } else {
                drop(server);
            }
            let sent = String::from_utf8(sent[..length].to_vec()).unwrap();
            sent.split("\r\n").filter(|word| !word.contains(['*', '$'])).collect::<Vec<_>>().join(" ")
        };
        let (told, sent) = tokio::join!(asks(&mut connection), answers);
        (told, sent.trim_end().to_owned())
    }

    fn session() -> Session {
        Session { id: "7".into(), address: "host:1".into() }
    }

    #[tokio::test]
    async fn session_is_what_the_server_says_and_unknown_to_a_user_that_may_not_ask() {
        let said = Some("+id=7 addr=host:1 laddr=host:2 user=default\r\n");
        let (told, sent) = answered(said, Session::of).await;
        assert_eq!((told.unwrap(), &*sent), (Some(session()), "CLIENT INFO"));
        let refused = Some("-NOPERM it has no permissions\r\n");
        assert_eq!(answered(refused, Session::of).await.0.unwrap(), None);
        // What has no connection cannot know whether it may ask.
        assert!(answered(None, Session::of).await.0.is_err());
    }

    #[tokio::test]
    async fn session_is_ended_by_both_its_parts_and_a_refusal_is_no_broken_connection() {
        let ends = async |connection: &mut _| session().end(connection).await;
        let (told, sent) = answered(Some(":1\r\n"), ends).await;
        assert!(matches!(told, Ok(Ok(()))), "{told:?}");
        assert_eq!(sent, "CLIENT KILL ID 7 ADDR host:1");
        let told = answered(Some("-NOPERM it has no permissions\r\n"), ends).await.0;
        assert!(matches!(told, Ok(Err(_))), "{told:?}");
        let told = answered(None, ends).await.0;
        assert!(told.is_err(), "{told:?}");
    }
}
