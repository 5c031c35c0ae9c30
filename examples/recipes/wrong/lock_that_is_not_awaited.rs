//! ```sh
//! cargo add latchwork
//! ```

#![deny(unused_must_use)]

fn main() -> Result<(), latchwork::LockError> {
    let lock = latchwork::LockClient::local().get_lock("orders:42")?;
    //~ unused implementer of `Future` that must be used
    lock.lock();
    Ok(())
}
