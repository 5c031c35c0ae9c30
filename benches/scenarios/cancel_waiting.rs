//! The cost of giving up a wait.

fn main() {
    benches::criterion::measure(benches::scenarios::cancel_waiting());
}
