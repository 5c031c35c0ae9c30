//! What is made wrong on purpose, for a check to find: a check that finds nothing may be one that cannot.

pub mod seeded;
#[cfg(feature = "stores")]
pub mod twin;
