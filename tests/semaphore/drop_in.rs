//! One suite, compiled twice: against `tokio::sync::Semaphore`, and against ours by changing nothing but the
//! `use` line.

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
