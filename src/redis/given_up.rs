//! [`GivenUp`]: connections that are not used any more, while what was sent over them may still be on its way.

use std::sync::Arc;

use ::redis::RedisError;
use ::redis::aio::MultiplexedConnection;

use crate::sync::Mutex;

use super::error::is_broken;

/// Connections to one server that were given up. Nothing is to be sent to it before they have [ended](Self::end): a release that
/// nobody waits for any more must not come when its owner has the lock anew.
#[derive(Clone, Default)]
pub(super) struct GivenUp(Arc<Mutex<Vec<Session>>>);

/// How the server calls a connection. Both parts are needed: another server, or this one after a restart, counts from one again.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Session {
    id: String,
    address: String,
}

impl GivenUp {
    pub(super) fn add(&self, session: Session) {
        self.0.lock().push(session);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// From then on nothing that was sent over them runs any more.
    pub(super) async fn end(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        // They stay in the list until they have ended, so that others who are about to send something end them, too.
        let sessions = self.0.lock().clone();
        for session in &sessions {
            session.end(connection).await?;
        }
        self.0.lock().retain(|session| !sessions.contains(session));
        Ok(())
    }
}

impl Session {
    /// `None`: the server does not say, as before 6.2, or not to this user.
    pub(super) async fn of(connection: &mut MultiplexedConnection) -> Result<Option<Self>, RedisError> {
        let info: String = match ::redis::cmd("CLIENT").arg("INFO").query_async(connection).await {
            Ok(info) => info,
            // A connection that could not be ended, should it stall again, is not to be used.
            Err(error) if is_broken(&error) => return Err(error),
            Err(_) => return Ok(None),
        };
        let field = |name| info.split(' ').find_map(|field| field.strip_prefix(name)).map(str::to_owned);
        Ok(field("id=").zip(field("addr=")).map(|(id, address)| Self { id, address }))
    }

    async fn end(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        let mut kill = ::redis::cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(&self.id).arg("ADDR").arg(&self.address);
        match kill.query_async::<usize>(connection).await {
            Err(error) if is_broken(&error) => Err(error),
            // Also if the user may not do it: there is no help for that.
            _ => Ok(()),
        }
    }
}
