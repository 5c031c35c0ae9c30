//! One suite, compiled against `tokio::sync::Semaphore` and against ours; only the `use` line differs.

mod tokio_s {
    use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit, TryAcquireError};

    include!("drop_in/suite.rs");
}

mod ours {
    use latchwork::{
        AcquireError, AsyncSemaphore as Semaphore, OwnedSemaphorePermit, SemaphorePermit, TryAcquireError,
    };

    include!("drop_in/suite.rs");
}
