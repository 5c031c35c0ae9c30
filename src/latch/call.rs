//! [`Call`]: a call that was heard and not yet answered.

use super::Latch;

/// A call that was heard but not yet answered.
///
/// Dropping it passes it on to the next waiter: a task that is cancelled between waking up and doing what it was woken for
/// must not take the call with it. [`consume`](Self::consume) and [`waste`](Self::waste) say that it was answered, so that
/// nobody else needs to wake up for it.
#[derive(Debug)]
#[must_use = "dropping a call passes it on to the next waiter"]
pub struct Call<'a>(Option<&'a Latch>);

impl<'a> Call<'a> {
    pub(super) fn new(latch: &'a Latch) -> Self {
        Self(Some(latch))
    }

    /// The call was answered, and it was worth waking up for.
    pub fn consume(mut self) {
        if let Some(answers) = self.0.take().and_then(Latch::answers) {
            answers.wanted.add_one();
        }
    }

    /// The call was answered in vain: what it promised was gone already.
    ///
    /// The same as [`consume`](Self::consume), but for the figures (see [`RegistryStats`](crate::RegistryStats)).
    pub fn waste(mut self) {
        if let Some(answers) = self.0.take().and_then(Latch::answers) {
            answers.wasted.add_one();
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(latch) = self.0 {
            latch.release(1);
        }
    }
}
