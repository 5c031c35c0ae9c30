//! Every error of the locks converts into [`LockError`] with `?`, keeps its text and names its source once.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Duration;

use latchwork::local::Local;
use latchwork::lock::LockName;
use latchwork::redis::Redis;
use latchwork::subscription::SubscribeError;
use latchwork::{Lease, LeaseId, LockClient, LockError, LockOptions, NameError};

use crate::over_local::{Between, over};

/// Applies `?` to each error, as a user's function would.
async fn met(name: &str) -> Result<(), LockError> {
    let client = LockClient::local();
    match name {
        "NameError" => _ = client.get_lock("")?,
        "MultiLockError" => _ = client.get_multi_lock([])?,
        "LeaseError" => {
            let options = LockOptions::default().watchdog_timeout(Duration::ZERO);
            _ = LockClient::with_options(Local::new(), &options)?;
        }
        "LeaseIdError" => _ = "worker-3".parse::<LeaseId>()?,
        "SubscribeError" => Err(SubscribeError::new("no right to the channel"))?,
        "ShutdownError" => {
            let _guard = client.get_lock("orders")?.lock().await?;
            client.shutdown(Duration::ZERO).await?;
        }
        "redis::Error" => _ = Redis::connect("http://127.0.0.1").await?,
        "LockError" => _ = client.get_lock("orders")?.try_lock_for(Duration::ZERO, Lease::MAX * 2).await?,
        other => panic!("{other} is met nowhere in this test"),
    }
    Ok(())
}

fn chain(error: &dyn Error) -> Vec<String> {
    let mut said = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        said.push(cause.to_string());
        next = cause.source();
    }
    said
}

/// Errors that are no lock outcome: the semaphore's own, and errors nested in another.
const APART: [&str; 4] = ["AcquireError", "TryAcquireError", "OfLock", "OtherKind"];

fn errors_in(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            errors_in(&path, found);
            continue;
        }
        for line in fs::read_to_string(&path).unwrap_or_default().lines() {
            let name =
                line.strip_prefix("impl Error for ").or(line.strip_prefix("impl std::error::Error for "));
            let Some(name) = name.and_then(|rest| rest.split([' ', '{']).next()) else { continue };
            // Look below the crate's folder only, whose own path may contain `redis`.
            let below = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(&path);
            let prefix =
                if below.components().any(|part| part.as_os_str() == "redis") { "redis::" } else { "" };
            found.push(format!("{prefix}{name}"));
        }
    }
}

#[tokio::test]
async fn every_error_turns_into_a_lock_error_by_a_question_mark() {
    let mut names = Vec::new();
    errors_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut names);
    names.retain(|name| !APART.contains(&&**name));
    names.sort();
    assert_eq!(names.len(), 8, "{names:?}");
    for name in names {
        let error = met(&name).await.expect_err(&name);
        let said = chain(&error);
        let each_once =
            said.iter().all(|one| said.iter().filter(|other| other.contains(&**one)).count() == 1);
        assert!(each_once, "expected each cause once in the text of {name}, and got {said:?}");
        assert!(!error.is_retryable(), "{name}: {error}");
    }
}

struct NoBraces;

impl Between for NoBraces {
    fn check_name(&self, name: &LockName) -> Result<(), NameError> {
        if name.as_str().contains('{') { Err(NameError::EmptyHashTag) } else { Ok(()) }
    }
}

#[test]
fn lock_creation_refuses_a_name_the_store_cannot_keep() {
    let client = LockClient::new(over(&Local::new(), NoBraces));
    client.get_lock("orders").unwrap();
    let refused = [
        client.get_lock("{}orders").map(drop),
        client.get_fair_lock("{}orders").map(drop),
        client.get_read_write_lock("{}orders").map(drop),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(LockError::Name(NameError::EmptyHashTag))), "{refused:?}");
    }
}

#[tokio::test]
async fn unreachable_server_may_be_retried_and_a_wrong_url_may_not() {
    let connect =
        async |url| -> Result<LockClient, LockError> { Ok(LockClient::new(Redis::connect(url).await?)) };
    let error = connect("redis://127.0.0.1:1").await.unwrap_err();
    assert!(error.is_unreachable() && error.is_retryable() && !error.is_refused(), "{error:?}");
    assert!(!error.is_shut_down(), "{error:?}");
    let error = connect("http://127.0.0.1").await.unwrap_err();
    assert!(error.is_refused() && !error.is_retryable(), "{error:?}");
}
