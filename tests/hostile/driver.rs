//! [`attack`]: checks a property against inputs that no client of this crate writes.
//!
//! Each target has a corpus, `corpus/TARGET.txt`, with one input a line in the form of [`escape_ascii`]. A
//! run tries the whole corpus, then random mutations by a seed that is printed.
//!
//! | variable | meaning |
//! |---|---|
//! | `LATCHWORK_FUZZ_SECONDS` | time for mutations of each target; by default a fixed number of inputs |
//! | `LATCHWORK_FUZZ_SEED` | seed of an earlier run, to repeat the run |
//!
//! An input that breaks the property is shortened and printed as a line for the corpus.
//!
//! [`escape_ascii`]: slice::escape_ascii

use std::env;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::process::abort;
use std::sync::{Arc, Condvar, Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

/// Number of mutations without a time limit: a second or two of the slowest target.
const INPUTS: usize = 4_000;

/// A longer run counts as endless.
const LIMIT: Duration = Duration::from_secs(10);

const LONGEST: usize = 2_000;

/// Numbers at limits of types and formats.
const NUMBERS: [&str; 12] = [
    "0",
    "1",
    "-1",
    "-3",
    "00",
    "+1",
    "65535",
    "65536",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
];

/// Tries the corpus of `target` and mutations of the corpus, with `words` inserted.
///
/// # Panics
///
/// If `property` panics, with the shortest such input found.
pub(crate) fn attack(target: &str, words: &[&str], property: impl Fn(&[u8])) {
    let corpus = corpus(target);
    let watched = Watched::new(target);
    if let Some(input) = corpus.iter().find(|input| breaks(&watched, &property, input)) {
        give_up(target, "the corpus", input, &property);
    }
    if let Err(input) = draw(target, &corpus, words, |input| !breaks(&watched, &property, input)) {
        let shorter = shorten(input, |input| breaks(&watched, &property, input));
        give_up(target, "what was drawn", &shorter, &property);
    }
}

/// Tries random inputs; returns the first input that does not hold.
fn draw(
    target: &str,
    corpus: &[Vec<u8>],
    words: &[&str],
    holds: impl Fn(&[u8]) -> bool,
) -> Result<(), Vec<u8>> {
    let seed = number("LATCHWORK_FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..));
    let until = number("LATCHWORK_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    println!("{target}: LATCHWORK_FUZZ_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let mut inputs = 0_usize;
    while until.map_or(inputs < INPUTS, |until| Instant::now() < until) {
        let input = changed(&mut rng, corpus, words);
        inputs += 1;
        if !holds(&input) {
            return Err(input);
        }
    }
    println!("{target}: {inputs} inputs beside {} of the corpus", corpus.len());
    Ok(())
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

/// Returns an input of the corpus, or an empty one, with some changes.
fn changed(rng: &mut Rng, corpus: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut input =
        if rng.u8(..) < 16 { Vec::new() } else { rng.choice(corpus).cloned().unwrap_or_default() };
    for _ in 0..rng.usize(1..=8) {
        change(rng, &mut input, corpus, words);
    }
    input.truncate(LONGEST);
    input
}

fn change(rng: &mut Rng, input: &mut Vec<u8>, corpus: &[Vec<u8>], words: &[&str]) {
    let at = rng.usize(..=input.len());
    let to = rng.usize(at..=input.len().min(at + 16));
    let piece: Vec<u8> = match rng.u8(..8) {
        0 => Vec::new(),
        1 => vec![rng.u8(..)],
        2 => vec![rng.u8(b' '..=b'~')],
        3 => rng.choice(NUMBERS).unwrap_or_default().into(),
        4 => input[at..to].repeat(rng.usize(2..=20)),
        5 => {
            let other = rng.choice(corpus).cloned().unwrap_or_default();
            let from = rng.usize(..=other.len());
            other[from..].to_vec()
        }
        _ => rng.choice(words).copied().unwrap_or_default().into(),
    };
    let end = if rng.bool() { at } else { to };
    input.splice(at..end, piece);
    if rng.u8(..8) == 0
        && let Some(byte) = rng.choice(input.iter_mut())
    {
        *byte ^= 1 << rng.u8(..8);
    }
}

/// Removes every piece not needed to break the property.
fn shorten(mut input: Vec<u8>, breaks: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut piece = input.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        while at < input.len() {
            let mut shorter = input.clone();
            shorter.drain(at..(at + piece).min(input.len()));
            if breaks(&shorter) { input = shorter } else { at += piece }
        }
        piece = if piece == 1 { 0 } else { piece.div_ceil(2) };
    }
    input
}

fn give_up(target: &str, of: &str, input: &[u8], property: &impl Fn(&[u8])) -> ! {
    println!("{target}: for corpus/{target}.txt, of {of}:\n{}", input.escape_ascii());
    property(input);
    panic!("it holds now of an input that it did not hold of: it is no function of its input");
}

/// Runs the property without printing a panic; true if broken.
fn breaks(watched: &Watched, property: &impl Fn(&[u8]), input: &[u8]) -> bool {
    watched.begin(input);
    let broken = in_silence(|| catch_unwind(AssertUnwindSafe(|| property(input))).is_err());
    watched.end();
    broken
}

thread_local! {
    /// True while panics of this thread are caught and not printed.
    static SILENT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

fn in_silence<T>(act: impl FnOnce() -> T) -> T {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !SILENT.get() {
                before(panic);
            }
        }));
    });
    SILENT.set(true);
    let result = act();
    SILENT.set(false);
    result
}

/// The present input and its start time, watched by a thread, as an endless property cannot stop itself.
struct Watched(Arc<(Mutex<Watch>, Condvar)>);

#[derive(Default)]
struct Watch {
    tried: Option<(Instant, Vec<u8>)>,
    over: bool,
}

impl Watched {
    fn new(target: &str) -> Self {
        let shared = Arc::<(Mutex<Watch>, Condvar)>::default();
        let (watched, target) = (Arc::clone(&shared), target.to_owned());
        thread::spawn(move || {
            let (watch, changed) = &*watched;
            let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
            while !watch.over {
                watch = changed.wait_timeout(watch, LIMIT / 10).unwrap_or_else(PoisonError::into_inner).0;
                if let Some((since, input)) = &watch.tried
                    && since.elapsed() > LIMIT
                {
                    eprintln!("{target}: does not end within {LIMIT:?}:\n{}", input.escape_ascii());
                    abort();
                }
            }
        });
        Self(shared)
    }

    fn set(&self, set: impl FnOnce(&mut Watch)) {
        set(&mut self.0.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn begin(&self, input: &[u8]) {
        self.set(|watch| watch.tried = Some((Instant::now(), input.to_vec())));
    }

    fn end(&self) {
        self.set(|watch| watch.tried = None);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.set(|watch| watch.over = true);
        self.0.1.notify_all();
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile/corpus").join(format!("{target}.txt"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(unescaped).collect()
}

/// Reverses [`slice::escape_ascii`].
fn unescaped(line: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), line.as_bytes());
    while let Some((byte, after)) = rest.split_first() {
        let (byte, after) = match (byte, after) {
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16).expect("a hexadecimal digit") as u8;
                (16 * digit(high) + digit(low), after)
            }
            (b'\\', [b't', after @ ..]) => (b'\t', after),
            (b'\\', [b'r', after @ ..]) => (b'\r', after),
            (b'\\', [b'n', after @ ..]) => (b'\n', after),
            (b'\\', [other, after @ ..]) => (*other, after),
            _ => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    bytes
}
