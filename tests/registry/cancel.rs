//! A waiter's whole life, cancelled at every poll, with every sequence of transport events.

use std::pin::pin;
use std::task::{Context, Poll};

use latchwork::subscription::{Inbox, Message, Registry, SubscribeError};
use latchwork_testkit::Bell;

use crate::script::{Script, poll};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Nothing,
    Ready,
    Failed,
    Resubscribed,
    Unlock,
    ReadUnlock,
}

const EVENTS: [Event; 6] =
    [Event::Nothing, Event::Ready, Event::Failed, Event::Resubscribed, Event::Unlock, Event::ReadUnlock];

/// Events in a sequence. An undisturbed waiter takes four polls.
const LENGTH: u32 = 4;

impl Event {
    fn happens_to(self, inbox: &Inbox) {
        match self {
            Self::Nothing => {}
            Self::Ready => inbox.ready(),
            Self::Failed => inbox.failed(SubscribeError::new("no connection")),
            Self::Resubscribed => inbox.resubscribed(),
            Self::Unlock => inbox.deliver(Message::Unlock),
            Self::ReadUnlock => inbox.deliver(Message::ReadUnlock),
        }
    }

    fn calls(self) -> bool {
        matches!(self, Self::Resubscribed | Self::Unlock | Self::ReadUnlock)
    }
}

fn stories() -> impl Iterator<Item = Vec<Event>> {
    (0..EVENTS.len().pow(LENGTH)).map(|number| {
        (0..LENGTH).map(|digit| EVENTS[number / EVENTS.len().pow(digit) % EVENTS.len()]).collect()
    })
}

async fn whole_way(registry: &Registry<Script>) -> Result<(), SubscribeError> {
    let subscription = registry.subscribe("a");
    subscription.subscribed().await?;
    let call = subscription.wait().await;
    if let Some(error) = subscription.failure() {
        return Err(error);
    }
    // The waiter's attempt takes one poll, with the notification unconsumed.
    let mut tried = false;
    std::future::poll_fn(|context| {
        if tried {
            return Poll::Ready(());
        }
        tried = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    call.consume();
    Ok(())
}

/// Polls a waiter `polls` times with an event after each poll, and drops the waiter after the last event.
/// True if the waiter finished. Only a wake-up may lead to progress.
fn go(
    registry: &Registry<Script>,
    inbox: &mut Option<Inbox>,
    script: &Script,
    story: &[Event],
    polls: usize,
) -> bool {
    let woken = Bell::default();
    let waker = woken.waker();
    let mut way = Box::pin(whole_way(registry));
    let mut arrived = false;
    for (number, event) in story.iter().enumerate() {
        let was_woken = woken.take();
        if !arrived && number < polls {
            let polled = way.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(
                was_woken || number == 0 || polled.is_pending(),
                "{story:?}: expected the wake-up of the waiter"
            );
            arrived = polled.is_ready();
            // The first poll subscribes, unless already subscribed.
            *inbox = script.steps().1.or(inbox.take());
        }
        if let Some(inbox) = inbox {
            event.happens_to(inbox);
        }
    }
    arrived
}

#[test]
fn nothing_is_left_wherever_it_is_dropped() {
    for story in stories() {
        for polls in 0..=story.len() {
            let (script, registry) = Script::registry();
            go(&registry, &mut None, &script, &story, polls);
            let stats = registry.stats();
            assert_eq!(
                (stats.entries, stats.interest),
                (0, 0),
                "expected no entry and no interest after {story:?}, dropped after {polls} polls"
            );
            assert_eq!(stats.subscriptions_begun, u64::from(polls > 0));
            assert_eq!(
                stats.subscriptions_begun,
                stats.subscriptions_ended + stats.subscriptions_failed,
                "expected an end of each subscription after {story:?}, dropped after {polls} polls"
            );
        }
    }
}

#[test]
fn remaining_waiter_misses_nothing_wherever_another_is_dropped() {
    for story in stories() {
        for polls in 0..=story.len() {
            let (script, registry) = Script::registry();
            let mut patient = pin!(whole_way(&registry));
            assert!(poll(patient.as_mut()).is_pending());
            let mut inbox = Some(script.inbox());
            // The patient waiter is subscribed all the time, so both see the same events.
            let arrived = go(&registry, &mut inbox, &script, &story, polls);
            let inbox = inbox.unwrap();

            let failed = story.contains(&Event::Failed);
            if !failed {
                inbox.ready();
                // A notification not consumed by the cancelled waiter must go to the patient waiter.
                if arrived || !story.iter().any(|event| event.calls()) {
                    inbox.deliver(Message::Unlock);
                }
            }
            let result = (0..3).find_map(|_| match poll(patient.as_mut()) {
                Poll::Ready(result) => Some(result),
                Poll::Pending => None,
            });
            let result = result
                .unwrap_or_else(|| panic!("expected the result of {story:?}, dropped after {polls} polls"));
            assert_eq!(
                result.is_err(),
                failed,
                "expected the result of the subscription in {story:?}, dropped after {polls} polls"
            );
            assert!(registry.is_empty());
            assert_eq!(script.steps().0, if failed { vec![] } else { vec!["-a".to_owned()] });
        }
    }
}
