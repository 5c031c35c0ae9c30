//! What does it cost to wait for a permit, and to be given it?

fn main() {
    benches::criterion::measure(benches::scenarios::hand_over());
}
