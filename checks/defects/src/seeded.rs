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

/// Seeds a fault by its name.
///
/// # Panics
///
/// If there is no such fault, or there are none in this build.
#[cfg(any(latchwork_suspend, latchwork_faults, latchwork_simulation))]
pub fn seed(name: &str) {
    use latchwork::fault::{self, Fault};
    let fault = Fault::ALL.iter().find(|fault| format!("{fault:?}") == name);
    fault::seed(*fault.unwrap_or_else(|| panic!("there is no fault {name}")));
}

/// Seeds a fault by its name.
///
/// # Panics
///
/// There are none in this build.
#[cfg(not(any(latchwork_suspend, latchwork_faults, latchwork_simulation)))]
pub fn seed(name: &str) {
    panic!("{VARIABLE}={name}: this build has no faults; `cargo xtask verify` makes one that has");
}
