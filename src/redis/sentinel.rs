//! [`Sentinels`]: who is asked where the master is, and followed when it changes.
//!
//! ```text
//! connect: ask the Sentinels in turn ─► connect there ─► ROLE says master ─► it is known, and the connection stands
//! follow:  subscribe to one ─► `+switch-master`, or its answer once a second ─► it is known
//! ```
//!
//! What is known is one address, which all connections watch. Each stands for as long as that is the address it was made to.

mod follow;
pub(super) mod url;

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind as Kind, FromRedisValue, RedisError,
    ServerErrorKind, Value, cmd,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::sync::Mutex;

use super::error::{Error, said_in_script};
use super::standing::{Address, Standing};
use super::tokio_runtime::TokioRuntime;

/// The Sentinels of one master, for as long as somebody wants to connect to it.
pub(super) struct Sentinels {
    shared: Arc<Shared>,
    /// Ends with this.
    _follower: JoinSet<()>,
}

/// What the follower shares.
struct Shared {
    /// What they call the master.
    name: Arc<str>,
    sentinels: Vec<Client>,
    /// Which of them is asked first: the last one who was right.
    first: Mutex<usize>,
    /// How to connect to the master, but for its address.
    server: Client,
    patience: Duration,
    /// Where the master is. `None`: it is not where it was said to be.
    known: watch::Sender<Address>,
}

/// What a Sentinel says.
type Said = Option<(String, u16)>;

impl Sentinels {
    /// `patience`: for each connection, and for each answer of a Sentinel.
    pub(super) fn new(
        name: &str,
        sentinels: Vec<Client>,
        server: Client,
        patience: Duration,
        runtime: &TokioRuntime,
    ) -> Self {
        let shared = Arc::new(Shared {
            name: name.into(),
            sentinels,
            first: Mutex::new(0),
            server,
            patience,
            known: watch::Sender::new(None),
        });
        let mut follower = JoinSet::new();
        follower.spawn_on(follow::follow(Arc::clone(&shared)), &runtime.handle);
        Self { shared, _follower: follower }
    }

    /// For errors: where the master is, or else what it is called.
    pub(super) fn address(&self) -> Arc<str> {
        let known = self.shared.known.borrow().clone();
        known.unwrap_or_else(|| Arc::clone(&self.shared.name))
    }

    /// Ends when the master is known to be elsewhere from now on.
    pub(super) fn moved(&self) -> Standing {
        Standing::until_moved(self.shared.known.subscribe())
    }

    /// Connects to the master, if what the Sentinels call so says that it is one.
    pub(super) async fn connect(
        &self,
        config: &AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, Standing), Error> {
        loop {
            let before = self.shared.known.borrow().clone();
            let (address, connection) = self.shared.find(config).await?;
            // Whoever was told otherwise meanwhile was told later than we asked.
            self.shared.learn(&address, |known| *known == before);
            let mut known = self.shared.known.subscribe();
            if *known.borrow_and_update() == Some(address) {
                return Ok((connection, Standing::until_moved(known)));
            }
        }
    }

    /// As [`Server::heartbeat`](super::server::Server::heartbeat): a master that was made a replica still answers a PING.
    pub(super) async fn heartbeat(
        &self,
        connection: &mut MultiplexedConnection,
        standing: &Standing,
    ) -> Result<(), RedisError> {
        if is_master(&role(connection).await?) {
            return Ok(());
        }
        self.doubt(standing);
        Err((Kind::Client, "it is not the master any more").into())
    }

    /// As [`Server::is_wrong_one`](super::server::Server::is_wrong_one).
    pub(super) fn is_wrong_one(&self, refusal: &RedisError, standing: &Standing) -> bool {
        let wrong = is_no_master(refusal);
        if wrong {
            self.doubt(standing);
        }
        wrong
    }

    /// Who is connected to with `standing` is not the master: nobody else is to go on as if it were.
    fn doubt(&self, standing: &Standing) {
        if !standing.has_ended() {
            self.shared.known.send_replace(None);
        }
    }
}

impl Shared {
    /// Asks one Sentinel after the other, until one names a server that says it is the master.
    async fn find(&self, config: &AsyncConnectionConfig) -> Result<(Arc<str>, MultiplexedConnection), Error> {
        let (mut refused, mut unknown, mut unasked) = (Vec::<(Said, Error)>::new(), false, None);
        for sentinel in self.in_turn() {
            let said = match self.ask(sentinel).await {
                Ok(said) => said,
                Err(error) => {
                    unasked.get_or_insert(error);
                    continue;
                }
            };
            let Some((host, port)) = &said else {
                unknown = true;
                continue;
            };
            if refused.iter().any(|(other, _)| *other == said) {
                continue;
            }
            match self.connect_to_master(host, *port, config).await {
                Ok(connection) => {
                    self.prefer(sentinel);
                    return Ok((address(host, *port), connection));
                }
                Err(error) => refused.push((said, error)),
            }
        }
        Err(match (refused.into_iter().next(), unasked) {
            (Some((_, error)), _) => error,
            (None, Some(error)) if !unknown => {
                Error::no_sentinel(&self.addresses(), error, &self.passwords())
            }
            (None, _) => Error::unknown_master(&self.name),
        })
    }

    /// The Sentinels, beginning with the last one who was right.
    fn in_turn(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, count) = (*self.first.lock(), self.sentinels.len());
        (0..count).map(move |turn| (first + turn) % count)
    }

    fn prefer(&self, sentinel: usize) {
        *self.first.lock() = sentinel;
    }

    /// Asks one Sentinel where the master is.
    async fn ask(&self, sentinel: usize) -> Result<Said, RedisError> {
        let config = self.config();
        let mut connection =
            self.sentinels[sentinel].get_multiplexed_async_connection_with_config(&config).await?;
        self.ask_over(&mut connection).await
    }

    async fn ask_over(&self, connection: &mut MultiplexedConnection) -> Result<Said, RedisError> {
        let mut question = cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&*self.name);
        question.query_async(connection).await
    }

    /// For a connection to a Sentinel.
    fn config(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.patience))
            .set_response_timeout(Some(self.patience))
    }

    async fn connect_to_master(
        &self,
        host: &str,
        port: u16,
        config: &AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, Error> {
        let settings = self.server.get_connection_info();
        let password = settings.redis_settings().password();
        let address = address(host, port);
        let made = Client::open(settings.clone().set_addr(moved(settings.addr(), host, port)));
        let connected = match made {
            Ok(client) => client.get_multiplexed_async_connection_with_config(config).await,
            Err(error) => Err(error),
        };
        let mut connection = connected.map_err(|error| Error::connection(&address, error, password))?;
        let role = role(&mut connection).await.map_err(|error| Error::no_role(&address, error))?;
        if is_master(&role) { Ok(connection) } else { Err(Error::not_master(&self.name, &address, &role)) }
    }

    /// The master is at `address`, if that is newer than what is known by now.
    fn learn(&self, address: &Arc<str>, is_newer: impl FnOnce(&Address) -> bool) {
        let learnt = self.known.send_if_modified(|known| {
            let news = known.as_ref() != Some(address) && is_newer(known);
            if news {
                *known = Some(Arc::clone(address));
            }
            news
        });
        if learnt {
            event!(INFO, master = &*self.name, server = &**address, "master found");
        }
    }

    fn addresses(&self) -> String {
        let address = |sentinel: &Client| sentinel.get_connection_info().addr().to_string();
        self.sentinels.iter().map(address).collect::<Vec<_>>().join(", ")
    }

    /// What must not be in an error's text.
    fn passwords(&self) -> Vec<&str> {
        self.sentinels.iter().filter_map(|it| it.get_connection_info().redis_settings().password()).collect()
    }
}

fn address(host: &str, port: u16) -> Arc<str> {
    ConnectionAddr::Tcp(host.into(), port).to_string().into()
}

/// The address `as_before`, with TLS or without, but elsewhere.
fn moved(as_before: &ConnectionAddr, host: &str, port: u16) -> ConnectionAddr {
    let host = host.to_owned();
    match as_before {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    }
}

/// What the server says it is: `master`, `slave` or `sentinel`.
async fn role(connection: &mut MultiplexedConnection) -> Result<String, RedisError> {
    // What stands behind the role differs from one to the other.
    let reply: Vec<Value> = cmd("ROLE").query_async(connection).await?;
    let role = reply.into_iter().next().unwrap_or(Value::Nil);
    Ok(String::from_redis_value(role)?)
}

fn is_master(role: &str) -> bool {
    role == "master"
}

/// Whether a server refused because it is a replica, or has not loaded its data yet.
fn is_no_master(refusal: &RedisError) -> bool {
    const WORDS: [&str; 3] = ["READONLY", "MASTERDOWN", "LOADING"];
    let by_kind = matches!(
        refusal.kind(),
        Kind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown | ServerErrorKind::BusyLoading)
    );
    let in_script = || {
        matches!(refusal.kind(), Kind::Server(_) | Kind::Extension)
            && WORDS.iter().any(|word| said_in_script(refusal, word))
    };
    by_kind || in_script()
}
