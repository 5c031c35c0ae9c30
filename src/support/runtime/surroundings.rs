//! [`Surroundings`]: a simulation's replacement of tokio, the network and the system's randomness.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite};

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A byte stream to and from a server.
pub trait Bytes: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Bytes for T {}

/// The surroundings of a simulated process.
pub trait Surroundings: fmt::Debug + Send + Sync + 'static {
    /// As a runtime's `now`.
    fn now(&self) -> Instant;

    /// As a runtime's `sleep_until`.
    fn sleep_until(&self, deadline: Instant) -> Boxed<()>;

    /// As a runtime's `spawn`.
    fn spawn(&self, task: Boxed<()>);

    /// As a runtime's `random`.
    fn random(&self) -> u64;

    /// Connects to the server at `address`, host and port.
    fn connect(&self, address: &str) -> Boxed<io::Result<Box<dyn Bytes>>>;
}
