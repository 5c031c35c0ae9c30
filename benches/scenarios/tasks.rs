//! Tasks on a runtime: the cost of an acquisition in a semaphore's usual place.

fn main() {
    benches::criterion::measure(benches::scenarios::tasks());
}
