//! A permit is free and nobody waits: what does it cost to take it and to give it back?

fn main() {
    benches::criterion::measure(benches::scenarios::uncontended());
}
