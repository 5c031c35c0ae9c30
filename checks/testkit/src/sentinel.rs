//! A [`SentinelSet`]: a master, its replica, and the Sentinels that monitor both.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::run::Setup;
use crate::{RedisServer, StartError};

const SENTINELS: usize = 3;
const MAJORITY: usize = 2;
/// Milliseconds of silence after which each Sentinel declares the master down. The first begins the failover
/// alone; several that begin at the same time can split the votes, and would only retry seconds later.
const DOWN_AFTER: [u32; SENTINELS] = [800, 1600, 2400];

/// Far longer than any step takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);
/// Time limit of a reply: a server that takes longer was stopped by the test.
const ANSWER: Duration = Duration::from_secs(1);

/// A Sentinel's default periods suit distant machines: it would discover the others in ten seconds.
const HASTE: [&str; 3] = ["info-period 100", "publish-period 100", "ask-period 100"];
/// After a jump of its clock, as on a busy machine, a Sentinel does nothing for half a minute by default.
const COMPOSURE: &str = "tilt-period 1000";
/// The default periods. A Sentinel promotes no replica whose data is older than three info periods; and a
/// returned former master may call itself the master for four publish periods, which a test may want to see.
const UNHURRIED: [&str; 2] = ["info-period 10000", "publish-period 2000"];

/// A master with one replica, and three Sentinels that replace the master a second after it stops answering.
/// All processes end as every [`RedisServer`] does.
#[derive(Debug)]
pub struct SentinelSet {
    /// The two servers; the first is the master at the start.
    pub servers: [RedisServer; 2],
    /// The Sentinels.
    pub sentinels: [RedisServer; SENTINELS],
}

impl SentinelSet {
    /// The Sentinels' name for the master.
    pub const NAME: &str = "mymaster";

    /// Starts all servers. When this returns, each Sentinel knows the others and the replica, and could
    /// replace the master. Panics if a server does not start.
    #[must_use]
    #[track_caller]
    pub fn start() -> SentinelSet {
        SentinelSet::start_with(&[], "")
    }

    /// As [`start`](Self::start), with more arguments for the two servers, and more lines for the Sentinels'
    /// configuration. Panics if a server does not start.
    #[must_use]
    #[track_caller]
    pub fn start_with(args: &[&str], config: &str) -> SentinelSet {
        let master = replicating(args, None);
        let replica = replicating(args, Some(&master));
        // Until the Sentinels know each other, they need half a minute of silence to declare the master down:
        // a Sentinel that began a failover too early would retry only seconds later.
        let config = format!(
            "sentinel monitor {name} 127.0.0.1 {port} 1\n\
             sentinel failover-timeout {name} 3000\n\
             {config}\n",
            name = Self::NAME,
            port = master.port(),
        );
        let sentinels = DOWN_AFTER.map(|_| match sentinel(config.clone()) {
            Ok(sentinel) => sentinel,
            Err(error) => panic!("cannot start a Sentinel: {error}"),
        });
        let set = SentinelSet { servers: [master, replica], sentinels };
        set.wait_until_ready();
        set
    }

    /// `redis+sentinel://127.0.0.1:<port>,127.0.0.1:<port>,127.0.0.1:<port>/mymaster`.
    #[must_use]
    pub fn url(&self) -> String {
        let sentinels = self.sentinels.each_ref().map(|it| format!("127.0.0.1:{}", it.port()));
        format!("redis+sentinel://{}/{}", sentinels.join(","), Self::NAME)
    }

    /// The index of the server ([`servers`](Self::servers)) that most Sentinels call the master. Panics if
    /// the Sentinels do not agree in reasonable time.
    #[must_use]
    #[track_caller]
    pub fn master(&self) -> usize {
        wait_for("the Sentinels to agree on a master", || {
            let votes =
                |port: u16| self.sentinels.iter().filter(|it| self.master_by(it) == Some(port)).count();
            self.servers.iter().position(|server| votes(server.port()) >= MAJORITY)
        })
    }

    /// Waits until all Sentinels that answer call this server ([`servers`](Self::servers)) the master. Panics
    /// if the wait takes unreasonably long.
    #[track_caller]
    pub fn wait_for_master(&self, server: usize) {
        let port = self.servers[server].port();
        wait_for("another master", || {
            let mut named = self.sentinels.iter().filter_map(|it| self.master_by(it)).peekable();
            (named.peek().is_some() && named.all(|it| it == port)).then_some(())
        });
    }

    /// Makes the Sentinels promote the replica, although the master is healthy. The failover is in progress
    /// when this returns. Panics if the Sentinels refuse for long, as without a healthy replica.
    #[track_caller]
    pub fn fail_over(&self) {
        let command = format!("SENTINEL FAILOVER {}", Self::NAME);
        wait_for("a failover", || {
            self.sentinels
                .iter()
                .any(|it| ask(it, &command, 1).is_ok_and(|reply| reply == ["+OK"]))
                .then_some(())
        });
    }

    /// Waits until a replica has all data of its master. Panics if the wait takes unreasonably long.
    #[track_caller]
    pub fn wait_until_in_sync(&self, replica: usize) {
        wait_for("the replica's being in sync", || is_in_sync(&self.servers[replica]).then_some(()));
    }

    #[track_caller]
    fn wait_until_ready(&self) {
        self.wait_until_in_sync(1);
        for haste in HASTE {
            self.tell_all(&format!("SENTINEL DEBUG {haste}"));
        }
        wait_for("the Sentinels to know each other", || {
            let ready = |it| knows_all(it).unwrap_or(false);
            self.sentinels.iter().all(ready).then_some(())
        });
        for pace in UNHURRIED.iter().chain([&COMPOSURE]) {
            self.tell_all(&format!("SENTINEL DEBUG {pace}"));
        }
        self.set_down_after(DOWN_AFTER);
    }

    /// Makes the Sentinels keep the master for an hour, however late it answers: for a test of something
    /// else, on a machine that may be busy. Panics if a Sentinel refuses.
    #[track_caller]
    pub fn be_patient(&self) {
        self.set_down_after([3_600_000; SENTINELS]);
    }

    #[track_caller]
    fn set_down_after(&self, millis: [u32; SENTINELS]) {
        for (sentinel, millis) in self.sentinels.iter().zip(millis) {
            let command = format!("SENTINEL SET {} down-after-milliseconds {millis}", Self::NAME);
            wait_for("a Sentinel's being set", || {
                ask(sentinel, &command, 1).ok().filter(|reply| reply == &["+OK"])
            });
        }
    }

    /// Ignores a server that does not know the command: it is only slower.
    fn tell_all(&self, command: &str) {
        for sentinel in &self.sentinels {
            let _ = ask(sentinel, command, 1);
        }
    }

    /// The port that the Sentinel would send a client to; `None` if the Sentinel does not answer.
    fn master_by(&self, sentinel: &RedisServer) -> Option<u16> {
        let command = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {}", Self::NAME);
        // *2, $9, 127.0.0.1, $<length>, the port.
        ask(sentinel, &command, 5).ok()?.last()?.parse().ok()
    }
}

#[track_caller]
fn replicating(args: &[&str], master: Option<&RedisServer>) -> RedisServer {
    let port = master.map(|master| master.port().to_string());
    let follow = port.iter().flat_map(|port| ["--replicaof", "127.0.0.1", port]);
    // By default the master waits five seconds for more replicas.
    let at_once = ["--repl-diskless-sync-delay", "0"];
    let args: Vec<&str> = at_once.into_iter().chain(follow).chain(args.iter().copied()).collect();
    RedisServer::start_with(&args)
}

fn sentinel(config: String) -> Result<RedisServer, StartError> {
    let args = vec!["--sentinel".into()];
    RedisServer::set_up(Setup { args, config: Some(config), ..Setup::default() })
}

/// True if the Sentinel knows its fellows and the replica, and finds all of them healthy.
fn knows_all(sentinel: &RedisServer) -> io::Result<bool> {
    let name = SentinelSet::NAME;
    let usable = ask(sentinel, &format!("SENTINEL CKQUORUM {name}"), 1)?;
    let replicas = ask(sentinel, &format!("SENTINEL REPLICAS {name}"), 1)?;
    Ok(usable.concat().starts_with(&format!("+OK {SENTINELS} ")) && replicas == ["*1"])
}

fn is_in_sync(server: &RedisServer) -> bool {
    // *5, $5, slave, $9, 127.0.0.1, :<port>, $9, connected. A master's reply has fewer lines.
    ask(server, "ROLE", 8).is_ok_and(|role| role.last().is_some_and(|state| state == "connected"))
}

/// The first lines of the reply to a command, without their ends; fewer if the reply ends early.
fn ask(server: &RedisServer, command: &str, lines: usize) -> io::Result<Vec<String>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port()))?;
    stream.set_read_timeout(Some(ANSWER))?;
    write!(stream, "{command}\r\nQUIT\r\n")?;
    BufReader::new(stream).lines().take(lines).collect()
}

#[track_caller]
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "expected within {PATIENCE:?}: {what}");
        thread::sleep(POLL);
    }
}
