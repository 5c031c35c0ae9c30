//! [`Credentials`]: user and password apart from the URL.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use ::redis::ConnectionInfo;

use super::server::Boxed;

/// A user and a password, as a [callback](super::super::RedisBuilder::credentials) gives them for each new
/// connection.
///
/// # Examples
///
/// ```
/// use latchwork::redis::{Credentials, Redis};
///
/// let credentials = Credentials::new("locks", "secret");
/// assert!(!format!("{credentials:?}").contains("secret"));
///
/// // Asked for each connection: a token that expires is replaced there.
/// let builder = Redis::builder().credentials(|| async { Ok(Credentials::new("locks", "secret")) });
/// # drop(builder);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    username: Option<String>,
    password: String,
}

impl Credentials {
    /// For this user.
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self { username: Some(username.into()), password: password.into() }
    }

    /// For the user that is meant if none is named.
    pub fn password(password: impl Into<String>) -> Self {
        Self { username: None, password: password.into() }
    }

    /// `info`, with these.
    pub(crate) fn into_info(self, info: ConnectionInfo) -> ConnectionInfo {
        let redis = info.redis_settings().clone().set_password(self.password);
        let redis = match self.username {
            Some(username) => redis.set_username(username),
            None => redis,
        };
        info.set_redis_settings(redis)
    }
}

/// Shows no password.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

/// Why a callback has none.
pub(crate) type NoCredentials = Box<dyn Error + Send + Sync>;

/// Asked for each new connection.
pub(crate) type CredentialsCallback =
    Arc<dyn Fn() -> Boxed<'static, Result<Credentials, NoCredentials>> + Send + Sync>;

#[cfg(test)]
mod tests {
    use ::redis::IntoConnectionInfo as _;

    use super::*;

    #[test]
    fn credentials_take_the_place_of_those_in_the_url_with_a_user_or_without() {
        let told = |credentials: Credentials| {
            let info = "redis://former:old@a".into_connection_info().unwrap();
            let info = credentials.into_info(info);
            let redis = info.redis_settings();
            (redis.username().map(str::to_owned), redis.password().map(str::to_owned))
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(told(Credentials::new("locks", "new")), (text("locks"), text("new")));
        assert_eq!(told(Credentials::password("new")), (text("former"), text("new")));
    }
}
