//! The lock's own scripts, called like the adapter does, among other calls that change the same keys.

use fastrand::Rng;

use super::commands::{condition, passes, rights};
use super::{Both, CALLS, Caller, Difference, LISTENERS};
use crate::store::redis::server::Reply;

macro_rules! script {
    ($file:literal) => {
        include_str!(concat!("../../../../../../src/redis/scripts/", $file))
    };
}

macro_rules! of {
    ($($file:literal)+) => {
        concat!($(script!($file)),+)
    };
}

const ACQUIRE: &str = script!("acquire.lua");
const RELEASE: &str = script!("release.lua");
const HOLDER: &str = script!("holder.lua");
const FORCE_RELEASE: &str = script!("force_release.lua");
const RENEW: &str = of!("steps.lua" "renew.lua");
const FAIR_ACQUIRE: &str = of!("fair_kind.lua" "queue.lua" "fair.lua" "queue_acquire.lua");
const FAIR_RELEASE: &str = of!("fair_kind.lua" "hand_off.lua" "queue.lua" "fair.lua" "queue_release.lua");
const FAIR_FORCE_RELEASE: &str = of!("fair_kind.lua" "queue.lua" "fair.lua" "queue_force_release.lua");
const WRITE_ACQUIRE: &str = of!("read_write_kind.lua" "queue.lua" "read_write.lua" "queue_acquire.lua");
const WRITE_RELEASE: &str =
    of!("read_write_kind.lua" "hand_off.lua" "queue.lua" "read_write.lua" "queue_release.lua");
const WRITE_FORCE_RELEASE: &str =
    of!("read_write_kind.lua" "queue.lua" "read_write.lua" "queue_force_release.lua");
const READ_ACQUIRE: &str = of!("read_write_kind.lua" "queue.lua" "read_write.lua" "read_acquire.lua");
const READ_RELEASE: &str = of!("read_write_kind.lua" "queue.lua" "read_write.lua" "read_release.lua");
const READ_WRITE_HOLDERS: &str =
    of!("read_write_kind.lua" "queue.lua" "read_write.lua" "read_write_holders.lua");
const PERMITS_ACQUIRE: &str =
    of!("permits_kind.lua" "steps.lua" "permits_enqueue.lua" "queue.lua" "permits.lua" "permits_acquire.lua");
const PERMITS_RELEASE: &str = of!(
    "permits_kind.lua" "steps.lua" "permits_hand_off.lua" "queue.lua" "permits.lua" "permits_release.lua"
);
const PERMITS_FORCE_RELEASE: &str =
    of!("permits_kind.lua" "steps.lua" "queue.lua" "permits.lua" "permits_force_release.lua");
const PERMITS_HOLDERS: &str = script!("permits_holders.lua");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScriptKind {
    Plain,
    Fair,
    ReadWrite,
    Permits,
}

const NAMES: &[&str] = &["lock", "{lock}", "a:{lock}:b"];

const CLIENTS: usize = LISTENERS;

/// A round with one lock, mostly of one kind, and with frequent or rare odd calls.
struct Round<'a> {
    rng: &'a mut Rng,
    name: &'static str,
    kind: ScriptKind,
    /// In hundredths.
    strangeness: u32,
    publish: &'static str,
    knows_all: &'static str,
}

pub(super) fn round(both: &mut Both, rng: &mut Rng) -> Result<(), Difference> {
    let kind = [
        ScriptKind::Plain,
        ScriptKind::Fair,
        ScriptKind::Fair,
        ScriptKind::ReadWrite,
        ScriptKind::ReadWrite,
        ScriptKind::ReadWrite,
        ScriptKind::Permits,
        ScriptKind::Permits,
    ][rng.usize(..8)];
    let mut round = Round {
        name: NAMES[rng.usize(..NAMES.len())],
        kind,
        strangeness: [0, 20, 150][rng.usize(..3)],
        publish: if rng.bool() { "publish" } else { "spublish" },
        knows_all: if rng.u32(..4) > 0 { "1" } else { "0" },
        rng,
    };
    let crowd = if round.rng.u32(..8) == 0 { round.rng.usize(1..230) } else { 0 };
    for number in 0..crowd {
        round.crowd(both, number)?;
    }
    for _ in 0..CALLS {
        round.step(both)?;
    }
    Ok(())
}

impl Round<'_> {
    fn step(&mut self, both: &mut Both) -> Result<(), Difference> {
        if self.rng.u32(..3) == 0 {
            both.pass(passes(self.rng));
        }
        if self.rng.u32(..1000) < self.strangeness {
            match self.rng.u32(..8) {
                0 => both.set_condition(condition(self.rng)),
                1 => rights(both, self.rng)?,
                _ => self.interfere(both)?,
            }
        }
        if self.rng.u32(..12) == 0 {
            self.listen(both)?;
        }
        let kind = if self.rng.u32(..60) == 0 { ScriptKind::Plain } else { self.kind };
        match kind {
            ScriptKind::Plain => self.plain(both),
            ScriptKind::Fair => self.queue(both, ScriptKind::Fair),
            ScriptKind::ReadWrite if self.rng.u32(..5) < 2 => self.queue(both, ScriptKind::ReadWrite),
            ScriptKind::ReadWrite => self.read(both),
            ScriptKind::Permits => self.permits(both),
        }
    }

    /// Calls a script by hash, and in full if the server does not know the script.
    fn script(
        &mut self,
        both: &mut Both,
        text: &str,
        keys: &[String],
        args: &[String],
    ) -> Result<(), Difference> {
        let caller = if self.rng.u32(..100) < self.strangeness { Caller::Limited } else { Caller::Admin };
        let rest = [keys.len().to_string()].into_iter().chain(keys.iter().chain(args).cloned());
        let rest: Vec<Vec<u8>> = rest.map(String::into_bytes).collect();
        let call = |name: &str, script: &str| {
            [vec![name.as_bytes().to_vec(), script.as_bytes().to_vec()], rest.clone()].concat()
        };
        let hash = ::redis::Script::new(text).get_hash().to_owned();
        both.count.scripts += 1;
        let reply = both.call(caller, &call("EVALSHA", &hash))?;
        if matches!(reply, Reply::Error(error) if error.starts_with("NOSCRIPT")) {
            both.call(caller, &call("EVAL", text))?;
        }
        Ok(())
    }

    fn id(&mut self) -> String {
        let client = self.rng.usize(..CLIENTS);
        format!("{}:{}", client_id(client), self.rng.u32(1..4))
    }

    fn millis(&mut self) -> String {
        ["1", "2", "5", "50", "1000", "1001", "30000", "3600000"][self.rng.usize(..8)].to_owned()
    }

    fn tokens(&mut self) -> u32 {
        [0, 0, 1, 3][self.rng.usize(..4)]
    }

    fn counter(&self, wanted: bool) -> Option<String> {
        wanted.then(|| beside("redisson_lock_token", self.name))
    }

    fn channel(&self, kind: ScriptKind) -> String {
        let prefix = if kind == ScriptKind::ReadWrite { "redisson_rwlock" } else { "redisson_lock__channel" };
        beside(prefix, self.name)
    }

    fn plain(&mut self, both: &mut Both) -> Result<(), Difference> {
        let (id, channel, publish) = (self.id(), self.channel(ScriptKind::Plain), self.publish.to_owned());
        let (name, message) = (self.name.to_owned(), "0".to_owned());
        match self.rng.u32(..20) {
            0 => self.script(both, HOLDER, &[name], &[]),
            1 => self.script(both, FORCE_RELEASE, &[name], &[message, publish, channel]),
            2..5 => self.renew(both),
            5..11 => {
                let other = Some(publish).filter(|publish| publish != "publish");
                let args: Vec<String> = [id, channel].into_iter().chain(other).collect();
                self.script(both, RELEASE, &[name], &args)
            }
            _ => {
                let tokens = self.tokens();
                let keys: Vec<String> = [name].into_iter().chain(self.counter(tokens > 0)).collect();
                let wanted = (tokens > 0).then(|| tokens.to_string());
                let args: Vec<String> = [self.millis(), id].into_iter().chain(wanted).collect();
                self.script(both, ACQUIRE, &keys, &args)
            }
        }
    }

    fn renew(&mut self, both: &mut Both) -> Result<(), Difference> {
        let is_shared = self.kind == ScriptKind::ReadWrite && self.rng.bool();
        let (mut keys, mut fields) = (Vec::new(), Vec::new());
        for _ in 0..self.rng.usize(1..4) {
            let id = self.id();
            let name = if self.rng.u32(..6) == 0 { "lock-of-none" } else { self.name };
            keys.push(name.to_owned());
            if is_shared {
                keys.push(self.read_lease(&id));
            }
            let is_writer = self.kind == ScriptKind::ReadWrite && !is_shared;
            fields.push(if is_writer { format!("{id}:write") } else { id });
        }
        let args = [self.millis(), if is_shared { "2" } else { "1" }.to_owned()];
        self.script(both, RENEW, &keys, &[args.to_vec(), fields].concat())
    }

    /// The leading keys and arguments of scripts with a queue.
    fn words(&mut self, kind: ScriptKind, releases: bool) -> (Vec<String>, Vec<String>) {
        let name = self.name;
        let own = |what: &str| match name.contains('{') {
            true => format!("{name}:latchwork:{what}"),
            false => format!("{name}:latchwork:{{{name}}}:{what}"),
        };
        let mut args: Vec<String> = [self.publish, self.knows_all].map(str::to_owned).into();
        args.extend([self.channel(kind), "0".to_owned()]);
        let keys = match kind {
            ScriptKind::ReadWrite => {
                let spare = if releases && self.rng.u32(..4) == 0 { "1" } else { "" };
                args.extend([own("rw_grant:"), "granted:".to_owned(), "1".to_owned()]);
                args.extend([self.read_leases(), spare.to_owned()]);
                ["rw_queue", "rw_positions", "rw_readers", "rw_turn"].map(own)
            }
            ScriptKind::Permits => {
                args[2].clear();
                args.extend([own("permits_grant:"), "granted:".to_owned()]);
                let [queue, positions] = ["permits_queue", "permits_positions"].map(own);
                return ([name.to_owned(), queue, positions].into(), args);
            }
            _ => {
                args.extend([own("fair_grant:"), "granted:".to_owned()]);
                let [queue, positions] = ["fair_queue", "fair_positions"].map(own);
                return (
                    [name.to_owned(), queue, positions, beside("redisson_lock_queue", name)].into(),
                    args,
                );
            }
        };
        ([name.to_owned()].into_iter().chain(keys).collect(), args)
    }

    fn read_leases(&self) -> String {
        if self.name.contains('{') { format!("{}:", self.name) } else { format!("{{{}}}:", self.name) }
    }

    fn read_lease(&self, id: &str) -> String {
        format!("{}{id}:rwlock_timeout:1", self.read_leases())
    }

    /// Life of a position in ms, its nonce, and the time waited in us.
    fn position(&mut self) -> [String; 3] {
        let waited = [0, self.rng.u32(..10), self.rng.u32(..5_000_000)][self.rng.usize(..3)];
        [self.millis(), format!("{:016x}", self.rng.u64(..)), waited.to_string()]
    }

    fn waits(&mut self) -> bool {
        self.rng.u32(..3) > 0
    }

    fn queue(&mut self, both: &mut Both, kind: ScriptKind) -> Result<(), Difference> {
        let is_fair = kind == ScriptKind::Fair;
        let (id, tokens) = (self.id(), self.tokens());
        let position = self.position();
        let draw = self.rng.u32(..20);
        let (mut keys, mut args) = self.words(kind, draw < 8);
        match draw {
            0 => {
                let text = if is_fair { FAIR_FORCE_RELEASE } else { WRITE_FORCE_RELEASE };
                self.script(both, text, &keys, &args)
            }
            1 => self.renew(both),
            2..9 => {
                args.push(id);
                if self.rng.bool() {
                    keys.extend(self.counter(tokens > 0));
                    args.extend([self.id(), self.millis(), tokens.to_string()].into_iter().chain(position));
                }
                self.script(both, if is_fair { FAIR_RELEASE } else { WRITE_RELEASE }, &keys, &args)
            }
            _ => {
                keys.extend(self.counter(tokens > 0));
                args.extend([self.millis(), id, tokens.to_string()]);
                if self.waits() {
                    args.extend(position);
                }
                self.script(both, if is_fair { FAIR_ACQUIRE } else { WRITE_ACQUIRE }, &keys, &args)
            }
        }
    }

    fn permits(&mut self, both: &mut Both) -> Result<(), Difference> {
        let (id, [kept, nonce, waited]) = (self.id(), self.position());
        let (keys, mut args) = self.words(ScriptKind::Permits, false);
        match self.rng.u32(..20) {
            0 => self.script(both, PERMITS_FORCE_RELEASE, &keys, &args),
            1 => self.script(both, PERMITS_HOLDERS, &keys[..1], &[]),
            2 => self.renew(both),
            3..9 => {
                args.push(id);
                self.script(both, PERMITS_RELEASE, &keys, &args)
            }
            _ => {
                let (count, capacity) = (self.rng.u32(1..4), self.rng.u32(3..6));
                args.extend([self.millis(), id, count.to_string(), capacity.to_string()]);
                if self.waits() {
                    args.extend([kept, nonce, waited]);
                }
                self.script(both, PERMITS_ACQUIRE, &keys, &args)
            }
        }
    }

    fn read(&mut self, both: &mut Both) -> Result<(), Difference> {
        let id = self.id();
        let draw = self.rng.u32(..20);
        let (mut keys, mut args) = self.words(ScriptKind::ReadWrite, (1..9).contains(&draw));
        match draw {
            0 => {
                let (name, leases) = (self.name.to_owned(), self.read_leases());
                let mut args = vec![String::new(); 7];
                args.extend([leases, String::new(), "0".to_owned()]);
                self.script(both, READ_WRITE_HOLDERS, &[name], &args)
            }
            1..9 => {
                keys.push(self.read_lease(&id));
                args.push(id);
                self.script(both, READ_RELEASE, &keys, &args)
            }
            _ => {
                let is_fenced = self.rng.bool();
                let [kept, _, waited] = self.position();
                let under = if self.rng.u32(..3) == 0 { self.id() } else { String::new() };
                keys.push(self.read_lease(&id));
                keys.extend(self.counter(is_fenced));
                let fenced = if is_fenced { "1" } else { "" }.to_owned();
                args.extend([self.millis(), id, under, fenced]);
                if self.waits() {
                    args.extend([kept, waited]);
                }
                self.script(both, READ_ACQUIRE, &keys, &args)
            }
        }
    }

    /// The kind, or the fair kind for plain locks.
    fn queued(&self) -> ScriptKind {
        if self.kind == ScriptKind::Plain { ScriptKind::Fair } else { self.kind }
    }

    fn listen(&mut self, both: &mut Both) -> Result<(), Difference> {
        let client = self.rng.usize(..CLIENTS);
        let kind = self.queued();
        let (_, args) = self.words(kind, false);
        let channel = match self.rng.u32(..3) {
            0 => args[2].clone(),
            _ => format!("{}{}", args[4], client_id(client)),
        };
        let command = ["SUBSCRIBE", "SSUBSCRIBE", "SUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "SUNSUBSCRIBE"]
            [self.rng.usize(..6)];
        both.plain(Caller::Listener(client), &format!("{command} {channel}"))?;
        Ok(())
    }

    /// Harms a lock's keys, as foreign clients, old versions, operators and evictions do.
    fn interfere(&mut self, both: &mut Both) -> Result<(), Difference> {
        let kind = self.queued();
        let (mut keys, _) = self.words(kind, false);
        let (id, millis) = (self.id(), self.millis());
        keys.push(self.read_lease(&id));
        keys.extend(self.counter(true));
        let key = &keys[self.rng.usize(..keys.len())];
        let lock = self.name;
        let mode = ["lock", "fair", "read", "write", "permits", "other"][self.rng.usize(..6)];
        let line = match self.rng.u32(..20) {
            0..3 => format!("DEL {key}"),
            3 => format!("PERSIST {key}"),
            4..6 => format!("PEXPIRE {key} {millis}"),
            6 => format!("SET {key} text"),
            7 => format!("HSET {lock} mode {mode}"),
            8 => format!("HDEL {lock} mode"),
            9 => format!("HSET {lock} mode write {id}:write 1 {id} 1"),
            10 => format!("HSET {lock} mode read {id} 2"),
            11 => {
                format!(
                    "HSET {lock} {id} {}",
                    ["0", "2", "x", "until:1700000001000000", "until:1700000001000000:2"]
                        [self.rng.usize(..5)]
                )
            }
            12 => format!("HSET {lock} {id}:write until:{}", both.now + self.rng.u64(..100_000)),
            13 => format!("RPUSH {} {id}", beside("redisson_lock_queue", lock)),
            14 => format!("ZADD {} {} {id}", keys[1], self.rng.u64(..2_000_000_000_000_000)),
            15 => {
                let nonce = ["", "x", "0123456789abcdef", "0123456789abcdef/2/4"][self.rng.usize(..4)];
                format!("HSET {} {id} {:016}:{nonce}", keys[2], both.now + self.rng.u64(..2_000_000))
            }
            16 => format!(
                "SET {} {}",
                keys[keys.len() - 1],
                ["9223372036854775806", "7", "x"][self.rng.usize(..3)]
            ),
            17 => "SCRIPT FLUSH".to_owned(),
            18 => format!("SET {}{id}:rwlock_timeout:2 1 PX {millis}", self.read_leases()),
            _ => format!("HDEL {lock} {id}"),
        };
        both.plain(Caller::Admin, &line)?;
        Ok(())
    }

    fn crowd(&mut self, both: &mut Both, number: usize) -> Result<(), Difference> {
        let kind = self.queued();
        let (keys, _) = self.words(kind, false);
        let id = format!("{}:{}", client_id(self.rng.usize(..CLIENTS + 1)), 100 + number);
        let (began, kept) = (both.now + number as u64, both.now + self.rng.u64(..2_000_000));
        if self.kind == ScriptKind::ReadWrite && number < 90 && self.rng.u32(..3) > 0 {
            both.plain(Caller::Admin, &format!("HSET {} mode read {id} 1", keys[0]))?;
            if self.rng.bool() {
                let lease = self.read_lease(&id);
                both.plain(Caller::Admin, &format!("SET {lease} 1 PX {}", self.rng.u32(1..5000)))?;
            }
        }
        both.plain(Caller::Admin, &format!("ZADD {} {began} {id}", keys[1]))?;
        both.plain(Caller::Admin, &format!("HSET {} {id} {kept:016}:{number:016x}", keys[2]))?;
        Ok(())
    }
}

fn client_id(client: usize) -> String {
    format!("{client:08x}-0000-4000-8000-000000000000")
}

fn beside(prefix: &str, name: &str) -> String {
    if name.contains('{') { format!("{prefix}:{name}") } else { format!("{prefix}:{{{name}}}") }
}
