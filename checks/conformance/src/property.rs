//! [`Property`]: one statement about a lock, and the run that checks it.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use latchwork::lock::Mode;

use crate::probe::Boxed;
use crate::store::{Store, Subject};
use crate::tasks;

/// A part of the suite: the locks behind one answer of
/// [`Backend::supports`](latchwork::backend::Backend::supports).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Plain locks, which every backend has.
    Plain,
    /// Fair locks.
    Fair,
    /// Both sides of read-write locks.
    ReadWrite,
    /// Semaphores.
    Permits,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Fair, Self::ReadWrite, Self::Permits];

    /// The modes of a backend that supports this part.
    pub fn modes(self) -> &'static [Mode] {
        match self {
            Self::Plain => &[Mode::Plain],
            Self::Fair => &[Mode::Fair],
            Self::ReadWrite => &[Mode::Read, Mode::Write],
            Self::Permits => &[Mode::Permits],
        }
    }
}

pub(crate) type Run = for<'a> fn(&'a Subject<'a>) -> Boxed<'a, ()>;

/// One expectation of a store, with the run that checks the store.
#[derive(Clone, Copy)]
pub struct Property {
    pub(crate) name: &'static str,
    pub(crate) mode: Mode,
    pub(crate) says: &'static [&'static str],
    pub(crate) run: Run,
}

impl fmt::Debug for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Property").field("name", &self.name).field("mode", &self.mode).finish()
    }
}

impl Property {
    /// The name of the property and of its test: unique for its [`mode`](Self::mode).
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The locks under test. For read-write locks, [`Mode::Read`] stands for both sides, and [`Mode::Write`]
    /// for the write side as a fair lock.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The sentence of the contract.
    pub fn contract(&self) -> String {
        self.says.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
    }

    /// Checks the property with new clients.
    ///
    /// # Errors
    ///
    /// [`Violation`] says what was seen instead. The panic behind the violation was shown by the panic hook,
    /// with its place in the suite.
    pub fn check<S: Store>(&self, store: &S) -> Result<(), Violation> {
        let subject = Subject { store, mode: self.mode };
        let seen = store.block_on(async {
            let run = tasks::run((self.run)(&subject));
            let mut run = pin!(run);
            let caught = std::future::poll_fn(|context| {
                match catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(context))) {
                    Ok(poll) => poll.map(Ok),
                    Err(panic) => Poll::Ready(Err(panic)),
                }
            });
            match caught.await {
                Ok(Some(())) => None,
                Ok(None) => Some("it did not end within the time limit of a property".to_owned()),
                Err(panic) => Some(text(&*panic)),
            }
        });
        match seen {
            None => Ok(()),
            Some(seen) => {
                let store = std::any::type_name::<S::Backend>();
                Err(Violation {
                    property: self.name,
                    mode: self.mode,
                    store,
                    contract: self.contract(),
                    seen,
                })
            }
        }
    }
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text").to_owned()
}

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The name of the property.
    pub property: &'static str,
    /// The locks under test.
    pub mode: Mode,
    /// The type of the backend.
    pub store: &'static str,
    /// The sentence of the contract.
    pub contract: String,
    /// The observed behaviour.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { property, mode, store, contract, seen } = self;
        writeln!(f, "`{property}` does not hold for the {mode} locks of `{store}`")?;
        writeln!(f, "  contract: {contract}")?;
        write!(f, "  seen:     {seen}")
    }
}

impl std::error::Error for Violation {}
