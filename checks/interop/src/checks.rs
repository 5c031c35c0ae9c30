//! [`Checks`]: the checks made so far, and their results.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of a check; the error says what the check saw instead.
pub(crate) type Checked<T = ()> = Result<T, String>;

#[derive(Debug, Default)]
pub(crate) struct Checks {
    only: String,
    passed: usize,
    failed: usize,
}

impl Checks {
    pub(crate) fn new(only: &str) -> Self {
        Self { only: only.to_owned(), ..Self::default() }
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        name.contains(&self.only)
    }

    pub(crate) fn note(&mut self, name: &str, checked: Checked) {
        match checked {
            Ok(()) => {
                println!("ok    {name}");
                self.passed += 1;
            }
            Err(why) => {
                println!("FAIL  {name}: {why}");
                self.failed += 1;
            }
        }
    }

    /// No check at all is a failure, too.
    pub(crate) fn result(&self) -> Checked {
        let said = format!("{} checks passed, {} failed", self.passed, self.failed);
        println!("\n{said}");
        if self.failed == 0 && self.passed > 0 { Ok(()) } else { Err(said) }
    }
}

/// The end of a process may show as a panic; the remaining checks go on.
pub(crate) fn guarded(check: impl FnOnce() -> Checked) -> Checked {
    catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        Err(said.unwrap_or_else(|| "it panicked".to_owned()))
    })
}
