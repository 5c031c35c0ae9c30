//! Tasks on a runtime: what does an acquisition cost where a semaphore usually lives?

fn main() {
    benches::criterion::measure(benches::scenarios::tasks());
}
