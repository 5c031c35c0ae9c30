//! The store: stands for a server.

use std::sync::Mutex;
use std::time::{Duration, Instant};

pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// The lease on the lock, by the numbers of the client and the lease, and the subscribers to releases.
#[derive(Default)]
pub(crate) struct Store {
    lease: Mutex<Option<(u64, u64, Instant)>>,
    hears: Mutex<Vec<Box<dyn Fn() + Send>>>,
}

impl Store {
    pub(crate) fn subscribe(&self, hears: impl Fn() + Send + 'static) {
        self.hears.lock().unwrap().push(Box::new(hears));
    }

    /// Leases the lock, if it is free or leased to the same id.
    pub(crate) fn try_acquire(&self, client: u64, number: u64) -> Result<(), Duration> {
        let (mut lease, now) = (self.lease.lock().unwrap(), Instant::now());
        match *lease {
            Some((other, its, until)) if (other, its) != (client, number) && until > now => Err(until - now),
            _ => {
                *lease = Some((client, number, now + LEASE));
                Ok(())
            }
        }
    }

    /// Extends the lease by its full time. False if another id has the lock.
    pub(crate) fn renew(&self, client: u64, number: u64) -> bool {
        let mut lease = self.lease.lock().unwrap();
        let its = lease.as_mut().filter(|(other, its, _)| (*other, *its) == (client, number));
        its.map(|(_, _, until)| *until = Instant::now() + LEASE).is_some()
    }

    /// Frees the lock, and notifies each client. Returns the number of other clients.
    pub(crate) fn release(&self, client: u64, number: u64) -> usize {
        {
            let mut lease = self.lease.lock().unwrap();
            if lease.is_none_or(|(other, its, _)| (other, its) != (client, number)) {
                return 0;
            }
            *lease = None;
        }
        let hears = self.hears.lock().unwrap();
        hears.iter().for_each(|hears| hears());
        hears.len() - 1
    }
}
