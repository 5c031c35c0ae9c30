//! A backend of your own: locks in a directory of files, shared by three processes.
//!
//! ```sh
//! cargo run -p own_backend
//! ```
//!
//! Each process increments a number in a file, by reading it and writing it back, under the lock.
//! `file_locks.rs` is the backend.

mod file_locks;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::path::Path;
use std::process::{Child, Command};
use std::{env, fs, process};

use file_locks::FileLocks;
use latchwork::LockClient;

const PROCESSES: usize = 3;
const ROUNDS: usize = 4;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    match env::args_os().nth(1) {
        Some(directory) => work(Path::new(&directory)).await,
        None => watch_them_work(),
    }
}

async fn work(directory: &Path) -> Result<(), Box<dyn Error>> {
    let client = LockClient::new(FileLocks::new(&directory.join("locks")));
    let lock = client.get_lock("number")?;
    let file = directory.join("number");
    for _ in 0..ROUNDS {
        let guard = lock.lock().await?;
        let number: usize = fs::read_to_string(&file)?.parse()?;
        fs::write(&file, (number + 1).to_string())?;
        println!("process {}: {number} + 1 = {}", process::id(), number + 1);
        guard.unlock().await?;
    }
    Ok(())
}

fn watch_them_work() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    fs::create_dir(directory.path().join("locks"))?;
    fs::write(directory.path().join("number"), "0")?;
    let start = |_| Command::new(env::current_exe()?).arg(directory.path()).spawn();
    let children: Vec<Child> = (0..PROCESSES).map(start).collect::<Result<_, _>>()?;
    for mut child in children {
        if !child.wait()?.success() {
            return Err("a process has failed".into());
        }
    }
    let number: usize = fs::read_to_string(directory.path().join("number"))?.parse()?;
    println!("{PROCESSES} processes, {ROUNDS} increments each: {number}");
    if number != PROCESSES * ROUNDS {
        return Err("two were inside at once".into());
    }
    Ok(())
}
