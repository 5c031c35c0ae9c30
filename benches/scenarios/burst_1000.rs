//! The cost of a waiter when a thousand wait at once.

fn main() {
    benches::criterion::measure(benches::scenarios::burst_1000());
}
