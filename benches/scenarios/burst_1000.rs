//! What does a waiter cost when a thousand wait at once?

fn main() {
    benches::criterion::measure(benches::scenarios::burst_1000());
}
