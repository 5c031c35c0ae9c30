//! Two threads, permits to spare: what do they cost each other?

fn main() {
    benches::criterion::measure(benches::scenarios::threads());
}
