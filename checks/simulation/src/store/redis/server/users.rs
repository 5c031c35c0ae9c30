//! [`Users`]: the rights of each user.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::command::{Command, Touched};
use super::glob;

#[derive(Debug)]
pub(super) struct Users(BTreeMap<Arc<str>, User>);

#[derive(Clone, Debug, Default)]
struct User {
    is_on: bool,
    needs_no_password: bool,
    passwords: Vec<String>,
    keys: Patterns,
    channels: Patterns,
    /// Default for commands without a rule.
    may_run_others: bool,
    /// Rules by name, or by name, `|` and subcommand.
    commands: BTreeMap<String, bool>,
}

#[derive(Clone, Debug, Default)]
struct Patterns(Vec<Vec<u8>>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    Command(String),
    Key,
    Channel,
}

impl Denied {
    pub(super) fn to_connection(&self) -> String {
        let to = match self {
            Self::Command(name) => format!("run the '{name}' command"),
            Self::Key => "access one of the keys used as arguments".to_owned(),
            Self::Channel => "access one of the channels used as arguments".to_owned(),
        };
        format!("NOPERM this user has no permissions to {to}")
    }

    pub(super) fn to_script(&self) -> String {
        let cannot = match self {
            Self::Command(_) => "run this command or subcommand",
            Self::Key => "access at least one of the keys mentioned in the command arguments",
            Self::Channel => "publish to the channel mentioned in the command",
        };
        format!("ERR The user executing the script can't {cannot}")
    }
}

impl Default for Users {
    fn default() -> Self {
        let mut users = Self(BTreeMap::new());
        users.set(DEFAULT, &[b"on", b"nopass", b"~*", b"&*", b"+@all"]).expect("these are rules");
        users
    }
}

const DEFAULT: &str = "default";

impl Users {
    pub(super) fn at_first(&self) -> Option<Arc<str>> {
        let (name, user) = self.0.get_key_value(DEFAULT)?;
        (user.is_on && user.needs_no_password).then(|| Arc::clone(name))
    }

    pub(super) fn authenticated(&self, name: &str, password: &str) -> Option<Arc<str>> {
        let (name, user) = self.0.get_key_value(name)?;
        let is_known = user.needs_no_password || user.passwords.iter().any(|its| its == password);
        (user.is_on && is_known).then(|| Arc::clone(name))
    }

    pub(super) fn set(&mut self, name: &str, rules: &[&[u8]]) -> Result<(), String> {
        let mut user = self.0.get(name).cloned().unwrap_or_default();
        for rule in rules {
            user.set(rule)?;
        }
        self.0.insert(name.into(), user);
        Ok(())
    }

    pub(super) fn admit(&self, user: &str, command: &Command, words: &[&[u8]]) -> Result<(), Denied> {
        // A deleted user has no rights.
        let Some(user) = self.0.get(user) else { return Err(Denied::Command(command.name().to_owned())) };
        if !command.needs_no_user() && !user.may_run(command, words) {
            return Err(Denied::Command(command.full_name(words)));
        }
        match command.touched(words) {
            Touched::Keys(keys) if keys.iter().any(|key| !user.keys.cover(key)) => Err(Denied::Key),
            Touched::Channels(all) if all.iter().any(|channel| !user.channels.cover(channel)) => {
                Err(Denied::Channel)
            }
            _ => Ok(()),
        }
    }
}

impl User {
    fn set(&mut self, rule: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(rule).into_owned();
        match (text.as_str(), rule) {
            ("on", _) => self.is_on = true,
            ("off", _) => self.is_on = false,
            ("nopass", _) => self.needs_no_password = true,
            ("resetpass", _) => (self.needs_no_password, self.passwords) = (false, Vec::new()),
            ("reset", _) => *self = Self::default(),
            ("allkeys", _) => self.keys.0 = vec![b"*".to_vec()],
            ("resetkeys", _) => self.keys.0.clear(),
            ("allchannels", _) => self.channels.0 = vec![b"*".to_vec()],
            ("resetchannels", _) => self.channels.0.clear(),
            ("+@all" | "allcommands" | "-@all" | "nocommands", _) => {
                self.may_run_others = matches!(text.as_str(), "+@all" | "allcommands");
                self.commands.clear();
            }
            (_, [b'~', pattern @ ..]) => self.keys.0.push(pattern.to_vec()),
            (_, [b'&', pattern @ ..]) => self.channels.0.push(pattern.to_vec()),
            (_, [b'>', _, ..]) => self.passwords.push(text[1..].to_owned()),
            (_, [sign @ (b'+' | b'-'), first, ..]) if *first != b'@' => {
                self.set_command(&text[1..].to_ascii_lowercase(), *sign == b'+');
            }
            _ => return Err(format!("ERR Error in ACL SETUSER modifier '{text}': Syntax error")),
        }
        Ok(())
    }

    fn set_command(&mut self, name: &str, may: bool) {
        // A rule for a whole command overrides earlier rules for its parts.
        self.commands.retain(|other, _| !other.strip_prefix(name).is_some_and(|rest| rest.starts_with('|')));
        self.commands.insert(name.to_owned(), may);
    }

    fn may_run(&self, command: &Command, words: &[&[u8]]) -> bool {
        if self.commands.is_empty() {
            return self.may_run_others;
        }
        let part = self.commands.get(&command.full_name(words));
        part.or_else(|| self.commands.get(command.name())).copied().unwrap_or(self.may_run_others)
    }
}

impl Patterns {
    fn cover(&self, text: &[u8]) -> bool {
        self.0.iter().any(|pattern| pattern == b"*" || glob::matches(pattern, text))
    }
}
