//! Defects for the checks to find: a check without a defect that it has found may be unable to find any.

pub mod copy;
pub mod faults;
#[cfg(feature = "stores")]
pub mod twin;
