//! [`ShutdownError`].

use std::error::Error;
use std::fmt;

use crate::lock::name::LockName;

/// What a [shutdown](crate::LockClient::shutdown) did not see the end of.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// # let client = latchwork::LockClient::local();
/// use std::time::Duration;
///
/// let guard = client.get_lock("orders:42")?.lock().await?;
/// let error = client.shutdown(Duration::ZERO).await.unwrap_err();
/// assert_eq!(error.held(), [guard.name().clone()]);
/// guard.unlock().await?;
/// client.shutdown(Duration::from_secs(5)).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShutdownError {
    pub(super) releasing: Vec<LockName>,
    pub(super) held: Vec<LockName>,
    pub(super) forked: bool,
}

impl ShutdownError {
    /// Whether this process was forked off after the client was made: its locks are the parent's, and so is
    /// its shutdown.
    pub fn is_forked(&self) -> bool {
        self.forked
    }

    /// Whether no guard is left, and only releases were not answered: no work is lost, and the program may
    /// end. The locks are free when their leases are over, if not before.
    pub fn is_release_pending(&self) -> bool {
        self.held.is_empty() && !self.forked
    }

    /// The locks whose release the store has not answered, each once, without those that are
    /// [held](Self::held) as well.
    pub fn releasing(&self) -> &[LockName] {
        &self.releasing
    }

    /// The locks that this client holds still by guards, each once.
    pub fn held(&self) -> &[LockName] {
        &self.held
    }
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.forked {
            return f.write_str(
                "the lock client was made before this process was forked off; shut it down in the parent",
            );
        }
        f.write_str("the lock client was shut down too soon: ")?;
        match (&*self.releasing, &*self.held) {
            (releasing, []) => {
                write!(f, "the release of {releasing:?} was not answered; ")?;
                f.write_str("allow more time, or leave them to their leases")
            }
            ([], held) => write!(f, "{held:?} are held still; drop all guards before"),
            (releasing, held) => write!(
                f,
                "the release of {releasing:?} was not answered, and {held:?} are held still; allow more \
                 time, and drop all guards before"
            ),
        }
    }
}

impl Error for ShutdownError {}

#[cfg(test)]
mod tests {
    use super::ShutdownError;

    #[test]
    fn only_the_error_of_a_child_says_that_it_is_one() {
        let error = |forked| ShutdownError { releasing: Vec::new(), held: Vec::new(), forked };
        assert!(error(true).is_forked() && !error(false).is_forked());
    }
}
