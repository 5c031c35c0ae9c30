//! [`Checks`]: what was checked, and what came of it.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a check came to, if not to what it should.
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

    /// Whether a check of this name is to be made.
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

    /// With nothing checked, nothing was found out.
    pub(crate) fn result(&self) -> Checked {
        let said = format!("{} checks passed, {} failed", self.passed, self.failed);
        println!("\n{said}");
        if self.failed == 0 && self.passed > 0 { Ok(()) } else { Err(said) }
    }
}

/// A process that is gone may be a panic; the checks after it go on.
pub(crate) fn guarded(check: impl FnOnce() -> Checked) -> Checked {
    catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        Err(said.unwrap_or_else(|| "it panicked".to_owned()))
    })
}
