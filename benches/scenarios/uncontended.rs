//! The cost of acquiring and releasing a free permit without waiters.

fn main() {
    benches::criterion::measure(benches::scenarios::uncontended());
}
