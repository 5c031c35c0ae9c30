//! What does it cost to give up waiting?

fn main() {
    benches::criterion::ask(benches::questions::cancel_waiting());
}
