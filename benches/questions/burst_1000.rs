//! What does a waiter cost when a thousand wait at once?

fn main() {
    benches::criterion::ask(benches::questions::burst_1000());
}
