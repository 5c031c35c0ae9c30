//! [`Store`]: how the suite obtains clients of the store under test.

use latchwork::backend::Backend;
use latchwork::lock::{LockName, Mode};
use latchwork::{Lock, LockClient, LockOptions};

use crate::probe::{Boxed, Probe};
use crate::tasks;

/// A store of locks, as the suite reaches it.
///
/// Every closure that makes a backend is a `Store`: `|| FileLocks::new(&directory)`. Locks of the suite are
/// called `conformance:<process>:<number>`, and no process uses a name twice.
pub trait Store {
    /// The backend under test.
    type Backend: Backend;

    /// Connects to the store, as another process would: the backends of one store share nothing but the
    /// store. A backend that lives in one process returns a clone.
    fn connect(&self) -> impl Future<Output = Self::Backend>;

    /// The number of subscriptions to `channel` in the store, or 0 if the store cannot tell. With a store
    /// that can tell, each property also checks that no subscription is left, and the properties about
    /// unsubscribed waiters wait until the store knows.
    fn subscribers(&self, channel: &str) -> impl Future<Output = usize> {
        let _ = channel;
        async { 0 }
    }

    /// Runs a property to its end on this thread.
    ///
    /// Override this if the backend needs an executor around it (`tokio::runtime::Runtime::block_on`), or if
    /// its clock is simulated: then advance the clock whenever `property` is pending and nothing wakes it, as
    /// [`drive`](crate::drive) does.
    fn block_on<T>(&self, property: impl Future<Output = T>) -> T {
        tasks::block_on(property)
    }
}

impl<B: Backend, F: Fn() -> B> Store for F {
    type Backend = B;

    async fn connect(&self) -> B {
        self()
    }
}

/// A [`Store`] without its type.
pub(crate) trait AnyStore {
    fn client<'a>(&'a self, mode: Mode, options: &'a LockOptions) -> Boxed<'a, LockClient>;

    fn subscribers<'a>(&'a self, channel: &'a str) -> Boxed<'a, usize>;

    /// The function that finds the backend in a client.
    fn probe(&self) -> for<'c> fn(&'c LockClient) -> &'c dyn Probe;
}

impl<S: Store> AnyStore for S {
    fn client<'a>(&'a self, mode: Mode, options: &'a LockOptions) -> Boxed<'a, LockClient> {
        Box::pin(async move {
            let backend = self.connect().await;
            assert!(backend.supports(mode), "expected a store that supports {mode:?}");
            LockClient::with_options(backend, options).expect("the suite's options are in range")
        })
    }

    fn subscribers<'a>(&'a self, channel: &'a str) -> Boxed<'a, usize> {
        Box::pin(Store::subscribers(self, channel))
    }

    fn probe(&self) -> for<'c> fn(&'c LockClient) -> &'c dyn Probe {
        |client| client.backend::<S::Backend>().expect("the client has this backend")
    }
}

pub(crate) struct Subject<'s> {
    pub(crate) store: &'s dyn AnyStore,
    pub(crate) mode: Mode,
}

impl Subject<'_> {
    /// A client with the default watchdog. Clients of one store stand for processes.
    pub(crate) async fn client(&self) -> LockClient {
        self.client_with(&LockOptions::default()).await
    }

    pub(crate) async fn client_with(&self, options: &LockOptions) -> LockClient {
        let client = self.store.client(self.mode, options).await;
        tasks::use_clock_of(&client, self.store.probe());
        client
    }

    pub(crate) fn lock(&self, client: &LockClient, name: &str) -> Lock {
        let lock = match self.mode {
            Mode::Plain => client.get_lock(name),
            Mode::Fair => client.get_fair_lock(name),
            Mode::Write => client.get_read_write_lock(name).map(|both| both.write().clone()),
            _ => client.get_read_write_lock(name).map(|both| both.read().clone()),
        };
        lock.unwrap_or_else(|error| panic!("the client makes no lock {name:?}: {error}"))
    }

    pub(crate) fn backend<'c>(&self, client: &'c LockClient) -> &'c dyn Probe {
        (self.store.probe())(client)
    }

    /// The channel on which a queue head of `client` waits for the lock.
    pub(crate) fn channel(&self, client: &LockClient, name: &LockName) -> String {
        self.backend(client).channels(self.mode, name, client.id()).own
    }

    pub(crate) async fn subscribers(&self, channel: &str) -> usize {
        self.store.subscribers(channel).await
    }
}
