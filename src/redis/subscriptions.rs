//! The connection for subscriptions: kept alive, made again, and brought into line with what is wanted.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, ErrorKind as Kind, PushInfo, PushKind, RedisError};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use crate::transport::SubscribeError;

use super::back_off::BackOff;
#[cfg(feature = "cluster")]
use super::cluster::{self, Nodes};
use super::error::Error;
use super::server::Server;
use super::standing::Standing;
use super::timeouts::Timeouts;
use super::transport::{Changes, dispatch};
use super::wanted::Wanted;

/// A silently cut link is noticed after one of these, and the heartbeat's own time limit.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1);
pub(super) const HEARTBEAT_TIMEOUT: Duration = Duration::from_millis(800);
/// Channels to a SUBSCRIBE, so that one command does not hold up the server.
pub(super) const CHUNK: usize = 500;

/// Where messages come from.
pub(super) enum Source {
    Server(Box<Server>),
    /// Any of its nodes: a message that is published at one is brought to all.
    #[cfg(feature = "cluster")]
    Cluster(Arc<Nodes>),
}

impl Source {
    /// Whom to connect to: another one each time, if there are several.
    fn server(&self) -> Option<Server> {
        match self {
            Self::Server(server) => Some(Server::clone(server)),
            #[cfg(feature = "cluster")]
            Self::Cluster(nodes) => nodes.next_server(),
        }
    }

    /// An error if messages would not come over this new connection.
    async fn greet(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        match self {
            Self::Server(_) => {
                let _ = connection;
                Ok(())
            }
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => cluster::in_touch(connection).await,
        }
    }

    /// An error if messages would not come any more.
    async fn heartbeat(
        &self,
        server: &Server,
        standing: &Standing,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), RedisError> {
        match self {
            Self::Server(_) => server.heartbeat(connection, standing).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => cluster::in_touch(connection).await,
        }
    }
}

/// Keeps the server's subscriptions as `wanted`, through every loss of the connection, until the transport is dropped.
pub(super) async fn supervise(source: Source, timeouts: Timeouts, wanted: Arc<Wanted>, mut changes: Changes) {
    let mut back_off = BackOff::to_reconnect();
    // Whether inboxes may have missed messages: not before the first connection.
    let mut lost_some = false;
    loop {
        let server = source.server();
        let moved = server.as_ref().map_or_else(Standing::for_ever, Server::moved);
        if let Some(server) = server
            && let Ok(mut line) = Line::connect(&server, timeouts, &wanted).await
            && source.greet(&mut line.connection).await.is_ok()
            && line.subscribe_all(lost_some).await.is_ok()
        {
            back_off.reset();
            if lost_some {
                line.server.reconnects().add_one();
                event!(DEBUG, channels = line.subscribed.len(), "subscriptions are back");
            }
            lost_some = true;
            if line.serve(&source, &mut changes).await == End::Dropped {
                return;
            }
            wanted.all_fall();
            event!(WARN, channels = line.subscribed.len(), "connection for subscriptions lost");
        }
        let next_try = tokio::time::Instant::now() + back_off.next();
        let next_try = async {
            tokio::select! {
                () = sleep_until(next_try) => {}
                // There is another one to connect to.
                () = moved.ended() => {}
            }
        };
        tokio::pin!(next_try);
        // What changes meanwhile is in `wanted`, so the requests can go; but the end of the transport must be noticed.
        loop {
            tokio::select! {
                change = changes.recv() => if change.is_none() { return },
                () = &mut next_try => break,
            }
        }
    }
}

/// Why a line is no longer served.
#[derive(PartialEq, Eq)]
enum End {
    Broken,
    /// The transport was dropped, so nobody wants anything any more.
    Dropped,
}

/// One connection, and what it is subscribed to.
struct Line {
    connection: MultiplexedConnection,
    standing: Standing,
    server: Server,
    broken: Arc<Notify>,
    wanted: Arc<Wanted>,
    subscribed: HashSet<Arc<str>>,
}

impl Line {
    async fn connect(server: &Server, timeouts: Timeouts, wanted: &Arc<Wanted>) -> Result<Self, Error> {
        let broken = Arc::new(Notify::new());
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(timeouts.connect))
            .set_response_timeout(Some(HEARTBEAT_TIMEOUT))
            .set_push_sender({
                let (broken, wanted) = (Arc::clone(&broken), Arc::clone(wanted));
                move |push: PushInfo| -> Result<(), ()> {
                    if push.kind == PushKind::Disconnection {
                        // Kept if nobody listens right now.
                        broken.notify_one();
                    } else {
                        dispatch(&wanted, push);
                    }
                    Ok(())
                }
            });
        let (connection, standing) = server.connect(&config).await?;
        let wanted = Arc::clone(wanted);
        Ok(Self { connection, standing, server: server.clone(), broken, wanted, subscribed: HashSet::new() })
    }

    /// Subscribes to all that is wanted, and tells each inbox.
    async fn subscribe_all(&mut self, lost_some: bool) -> Result<(), RedisError> {
        let channels = self.wanted.channels();
        self.subscribe(channels.clone()).await?;
        for channel in channels.iter().filter(|channel| self.subscribed.contains(*channel)) {
            self.wanted.confirm(channel, lost_some);
        }
        Ok(())
    }

    async fn serve(&mut self, source: &Source, changes: &mut Changes) -> End {
        let mut heartbeat = interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let broken = Arc::clone(&self.broken);
        let moved = self.standing.clone().ended();
        tokio::pin!(moved);
        loop {
            let alive = tokio::select! {
                () = broken.notified() => return End::Broken,
                () = &mut moved => return End::Broken,
                change = changes.recv() => match change {
                    Some(change) => self.bring_into_line(change, changes).await,
                    None => return End::Dropped,
                },
                _ = heartbeat.tick() => source.heartbeat(&self.server, &self.standing, &mut self.connection).await,
            };
            if alive.is_err() {
                return End::Broken;
            }
        }
    }

    /// Subscribes to what is wanted and is not subscribed to, and the other way round, for `first` and all requests that wait
    /// behind it: many that come together cost one round trip.
    async fn bring_into_line(&mut self, first: Arc<str>, changes: &mut Changes) -> Result<(), RedisError> {
        let mut changed = HashSet::from([first]);
        while let Ok(next) = changes.try_recv() {
            changed.insert(next);
        }
        let (wanted, unwanted): (Vec<_>, Vec<_>) =
            changed.into_iter().partition(|channel| self.wanted.contains(channel));
        let gone: Vec<_> = unwanted.into_iter().filter(|channel| self.subscribed.remove(channel)).collect();
        for chunk in gone.chunks(CHUNK) {
            self.connection.unsubscribe(chunk.iter().map(|channel| &**channel).collect::<Vec<_>>()).await?;
        }
        let new = wanted.iter().filter(|channel| !self.subscribed.contains(*channel)).cloned().collect();
        self.subscribe(new).await?;
        for channel in wanted.iter().filter(|channel| self.subscribed.contains(*channel)) {
            self.wanted.confirm(channel, false);
        }
        Ok(())
    }

    /// Adds `channels` to what we are subscribed to. Those that the server refuses are told so and no longer wanted.
    async fn subscribe(&mut self, channels: Vec<Arc<str>>) -> Result<(), RedisError> {
        for chunk in channels.chunks(CHUNK) {
            let names: Vec<&str> = chunk.iter().map(|channel| &**channel).collect();
            match self.connection.subscribe(names).await {
                Ok(()) => self.subscribed.extend(chunk.iter().cloned()),
                Err(error) if is_refusal(&error) => {
                    // The server does not say which ones it meant, so each is asked for by itself.
                    for channel in chunk {
                        self.subscribe_one(channel).await?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn subscribe_one(&mut self, channel: &Arc<str>) -> Result<(), RedisError> {
        match self.connection.subscribe(&**channel).await {
            Ok(()) => {
                self.subscribed.insert(Arc::clone(channel));
                Ok(())
            }
            Err(error) if is_refusal(&error) => {
                if let Some(inbox) = self.wanted.refuse(channel) {
                    let error = Error::command(
                        &self.server.address(),
                        ::redis::cmd("SUBSCRIBE").arg(&**channel),
                        error,
                    );
                    inbox.failed(SubscribeError::new(error));
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether the server answered, and the answer was no.
pub(super) fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), Kind::Server(_) | Kind::Extension)
}
