//! `AsyncSemaphore` and what stands on it alone: `StripedSemaphores` and `Latch`. What needs interleavings is
//! in loom-tests.

mod api;
mod defects;
mod drop_in;
mod guarantees;
mod latch;
mod striped;
