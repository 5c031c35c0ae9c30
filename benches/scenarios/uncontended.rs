//! A permit is free and there are no waiters: what does it cost to take it and to give it back?

fn main() {
    benches::criterion::measure(benches::scenarios::uncontended());
}
