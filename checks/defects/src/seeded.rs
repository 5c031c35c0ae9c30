//! Seeding of one fault into a run, which the run must find.

/// Names the fault, as `latchwork::fault::Fault` spells it.
pub const VARIABLE: &str = "LATCHWORK_FAULT";

/// Seeds the fault whose name is in the environment, if there is a name.
///
/// # Panics
///
/// If there is no such fault, or there are none in this build.
pub fn from_environment() {
    let Ok(name) = std::env::var(VARIABLE) else { return };
    seed(&name);
}

#[cfg(any(latchwork_suspend, latchwork_faults, latchwork_simulation))]
fn seed(name: &str) {
    use latchwork::fault::{self, Fault};
    let fault = Fault::ALL.iter().find(|fault| format!("{fault:?}") == name);
    fault::seed(*fault.unwrap_or_else(|| panic!("{VARIABLE}: there is no fault {name}")));
}

#[cfg(not(any(latchwork_suspend, latchwork_faults, latchwork_simulation)))]
fn seed(name: &str) {
    panic!("{VARIABLE}={name}: this build has no faults; `cargo xtask verify` makes one that has");
}
