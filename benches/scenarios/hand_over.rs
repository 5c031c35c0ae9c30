//! The cost of a wait for a permit, and of its hand-over.

fn main() {
    benches::criterion::measure(benches::scenarios::hand_over());
}
