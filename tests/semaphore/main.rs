//! `AsyncSemaphore`, `StripedSemaphores` and `Latch`. loom-tests cover interleavings.

mod api;
mod defects;
mod drop_in;
mod guarantees;
mod latch;
mod scripts;
mod striped;
mod wakers;
