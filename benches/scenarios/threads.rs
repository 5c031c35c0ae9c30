//! Two threads with spare permits: the cost of each other's presence.

fn main() {
    benches::criterion::measure(benches::scenarios::threads());
}
