//! The server's end of the links: commands run one after another, as they arrive.

use std::collections::BTreeMap;

use super::link::{Inner, To};
use super::resp;
use super::server::{Effects, Push, Reply};
use super::way::Parcel;

/// Replies of a server that temporarily refuses commands.
const REFUSALS: [&str; 3] = [
    "LOADING Redis is loading the dataset in memory",
    "READONLY You can't write against a read only replica.",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
];

pub(super) type Said = BTreeMap<u64, Vec<u8>>;

impl Inner {
    pub(super) fn arrives_at_server(&mut self, id: u64, parcel: Parcel) {
        let Some(link) = self.links.get_mut(&id) else { return };
        match parcel {
            Parcel::Bytes(bytes) => link.unread.extend(bytes),
            Parcel::End | Parcel::Broken => self.end_session(id),
        }
    }

    /// Runs the next complete command that has arrived over the link. False if there is none.
    pub(super) fn runs_command(&mut self, id: u64) -> bool {
        let Some(link) = self.links.get_mut(&id) else { return false };
        let (Some(session), process) = (link.session, link.process) else { return false };
        let Some(command) = resp::take_command(&mut link.unread) else { return false };
        let effects = match self.refuses(&command) {
            Some(refusal) => {
                let reply = Some(Reply::Error(refusal.to_owned()));
                Effects { reply, ..Effects::default() }
            }
            None => {
                self.copy();
                let now = self.server_time();
                self.server.call(session, now, &command)
            }
        };
        self.note(id, &command, effects.reply.as_ref());
        let is_known = !matches!(&effects.reply, Some(Reply::Error(text)) if text.starts_with("NOSCRIPT"));
        if is_known && command.first().is_some_and(|name| name.starts_with(b"EVAL")) {
            *self.scripts.entry(process).or_default() += 1;
        }
        let mut said = Said::new();
        self.spread(id, effects, &mut said);
        if let Some((channel, message)) = forged(&command).filter(|_| self.happens(self.strangers)) {
            self.publish(&channel, &message, &mut said);
        }
        self.say(said);
        true
    }

    pub(super) fn say(&mut self, said: Said) {
        for (link, bytes) in said {
            self.send(link, To::Client, Parcel::Bytes(bytes));
        }
    }

    /// Lets a foreign client publish a message, over a connection of its own.
    pub(super) fn publish(&mut self, channel: &str, message: &str, said: &mut Said) {
        let now = self.server_time();
        let session = self.server.connect();
        let words = ["PUBLISH", channel, message].map(|word| word.as_bytes().to_vec());
        let effects = self.server.call(session, now, &words);
        self.server.disconnect(session);
        self.world.note(|| format!("a stranger: PUBLISH {channel} {message}"));
        self.spread(0, Effects { reply: None, ..effects }, said);
    }

    fn refuses(&self, command: &[Vec<u8>]) -> Option<&'static str> {
        let is_script = command.first().is_some_and(|name| name.starts_with(b"EVAL"));
        if !is_script || !self.happens(self.faults.refused) {
            return None;
        }
        Some(REFUSALS[self.world.chance(|draw| draw.usize(..REFUSALS.len()))])
    }

    fn note(&self, link: u64, command: &[Vec<u8>], reply: Option<&Reply>) {
        self.world.note(|| {
            let words: Vec<_> = command.iter().map(|word| short(word)).collect();
            format!("link {link}: {} -> {reply:?}", words.join(" "))
        });
    }

    fn spread(&mut self, id: u64, effects: Effects, said: &mut Said) {
        for Push { connection, reply } in effects.pushes {
            let Some(&link) = self.by_session.get(&connection) else { continue };
            let is_message = matches!(reply.first(), Some(Reply::Bulk(kind)) if kind.ends_with(b"message"));
            if is_message && self.happens(self.faults.messages_cut) {
                said.remove(&link);
                self.cut(link, true, true);
                continue;
            }
            resp::write_push(&reply, said.entry(link).or_default());
        }
        if let Some(reply) = &effects.reply {
            resp::write(reply, said.entry(id).or_default());
        }
        for session in effects.killed {
            if let Some(link) = self.by_session.remove(&session) {
                self.send(link, To::Client, Parcel::End);
                self.end_session(link);
            }
        }
    }

    pub(super) fn end_session(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if let Some(session) = link.session.take() {
            self.by_session.remove(&session);
            self.server.disconnect(session);
        }
        self.forget_ended(id);
    }

    pub(super) fn server_time(&self) -> u64 {
        /// A time in the year 2023.
        const BEGINNING: u64 = 1_700_000_000_000_000;
        (BEGINNING + self.world.now() / 1000).saturating_add_signed(self.clock)
    }
}

/// Forges the grant that a queueing script asks for, with a wrong nonce. Returns channel and message.
fn forged(command: &[Vec<u8>]) -> Option<(String, String)> {
    let mut words = command.iter().map(|word| String::from_utf8_lossy(word));
    let channels = words.by_ref().find(|word| word.ends_with("grant:"))?;
    let begins = words.next().filter(|word| *word == "granted:")?;
    let is_id = |word: &str| word.split_once(':').is_some_and(|(client, _)| client.len() == 36);
    let id = words.find(|word| is_id(word))?;
    let (client, number) = id.split_once(':')?;
    Some((format!("{channels}{client}"), format!("{begins}{number}:0123456789abcdef")))
}

fn short(word: &[u8]) -> String {
    const MOST: usize = 48;
    let text = String::from_utf8_lossy(word);
    if text.len() > MOST { text.chars().take(8).chain(['…']).collect() } else { text.into_owned() }
}
