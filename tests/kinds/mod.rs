//! The lock of a name, of each kind.
#![allow(dead_code, reason = "each test file uses a part of it")]

use latchwork::lock::Mode;
use latchwork::{Lock, LockClient};

pub(crate) const MODES: [Mode; 4] = [Mode::Plain, Mode::Fair, Mode::Read, Mode::Write];

pub(crate) fn lock_of(client: &LockClient, mode: Mode, name: &str) -> Lock {
    match mode {
        Mode::Plain => client.get_lock(name).unwrap(),
        Mode::Fair => client.get_fair_lock(name).unwrap(),
        Mode::Read => client.get_read_write_lock(name).unwrap().read().clone(),
        Mode::Write => client.get_read_write_lock(name).unwrap().write().clone(),
        other => panic!("{other}"),
    }
}
