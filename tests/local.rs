//! The local backend, by the suite for every backend.

mod conformance;

use std::time::Duration;

use conformance::{Store, conformance};
use latchwork::local::Local;
use latchwork::{LeaseError, LockClient, LockOptions};

struct InProcess(Local);

impl Store for InProcess {
    type Backend = Local;

    async fn client_with(&self, options: &LockOptions) -> LockClient<Local> {
        LockClient::with_options(self.0.clone(), options).unwrap()
    }

    async fn subscribers(&self, _channel: &str) -> usize {
        0
    }
}

conformance!(InProcess(Local::new()));

#[test]
fn watchdog_timeout_must_be_a_lease() {
    let options = LockOptions::default().watchdog_timeout(Duration::ZERO);
    assert_eq!(LockClient::with_options(Local::new(), &options).unwrap_err(), LeaseError::TooShort);
}
