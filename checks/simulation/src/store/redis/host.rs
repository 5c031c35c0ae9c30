//! [`Host`]: a process as the platform of the Redis adapter.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use latchwork::backend::Runtime;
use latchwork::redis::{Bytes, Surroundings};

use crate::world::Process;

use super::link::Links;
use super::stream::Stream;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

#[derive(Debug)]
pub(super) struct Host {
    process: Process,
    links: Links,
}

impl Host {
    pub(super) fn new(process: &Process, links: &Links) -> Arc<Self> {
        Arc::new(Self { process: process.clone(), links: links.clone() })
    }
}

impl Surroundings for Host {
    fn now(&self) -> Instant {
        self.process.now()
    }

    fn sleep_until(&self, deadline: Instant) -> Boxed<()> {
        Box::pin(self.process.sleep_until(deadline))
    }

    fn spawn(&self, task: Boxed<()>) {
        self.process.spawn(task);
    }

    fn random(&self) -> u64 {
        self.process.random()
    }

    fn connect(&self, _: &str) -> Boxed<io::Result<Box<dyn Bytes>>> {
        let connected = Stream::connect(&self.links, &self.process);
        Box::pin(async move { connected.await.map(|stream| Box::new(stream) as Box<dyn Bytes>) })
    }
}
