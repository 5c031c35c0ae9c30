//! What does it cost to give up waiting?

fn main() {
    benches::criterion::measure(benches::scenarios::cancel_waiting());
}
