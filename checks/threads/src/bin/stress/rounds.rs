//! Random rounds from a spinning start.

use std::sync::Arc;
use std::thread;

use fastrand::Rng;
use threads::{Hand, Mix, Round};

use threads::Start;

/// Steps in all the rounds that are made beforehand, and counted afterwards.
const STEPS: usize = 4096;

/// Plays a batch of rounds, and says how many.
///
/// # Errors
///
/// What is wrong with one of them.
pub(crate) fn batch(mix: &Mix, threads: usize, rng: &mut Rng) -> Result<u64, String> {
    let batch = (STEPS / (threads * mix.steps)).clamp(8, 256);
    let mut rounds = Vec::with_capacity(batch);
    let mut hands: Vec<Vec<Hand>> = (0..threads).map(|_| Vec::with_capacity(batch)).collect();
    for _ in 0..batch {
        let (round, of_round) = Round::new(mix, threads, rng);
        rounds.push(round);
        hands.iter_mut().zip(of_round).for_each(|(of_thread, hand)| of_thread.push(hand));
    }
    let start = Arc::new(Start::new(threads));
    let players: Vec<_> = hands
        .into_iter()
        .map(|mut hands| {
            let (start, mut rng) = (Arc::clone(&start), rng.fork());
            thread::spawn(move || play(&mut hands, &start, &mut rng).map(|()| hands))
        })
        .collect();
    let mut played = Vec::with_capacity(threads);
    for player in players {
        played.push(player.join().map_err(|_| "a thread has panicked")??.into_iter());
    }
    for round in rounds {
        let hands = played.iter_mut().map(|hands| hands.next().expect("one for each round")).collect();
        round.count(hands)?;
    }
    Ok(batch as u64)
}

fn play(hands: &mut [Hand], start: &Start, rng: &mut Rng) -> Result<(), String> {
    for round in 0..=hands.len() {
        // One more than there are rounds: a thread that is stuck in the last one is missed, too.
        if let Err(wrong) = start.line_up(round) {
            let previous = round.checked_sub(1).map(|round| &hands[round]);
            return Err(format!("{wrong}: {:?}", previous.map(Hand::semaphore)));
        }
        let Some(hand) = hands.get_mut(round) else { break };
        // Anything from nothing to as long as a step takes, so that steps meet in every place.
        let scale = rng.u32(..8);
        for _ in 0..rng.u32(..1 << scale) {
            std::hint::black_box(());
        }
        hand.play();
    }
    Ok(())
}
