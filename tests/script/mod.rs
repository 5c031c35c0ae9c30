//! A transport that records requests; the test plays the server.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use latchwork::latch::Notification;
use latchwork::subscription::{Inbox, Registry, Transport};

#[derive(Clone, Debug, Default)]
pub(crate) struct Script(Arc<Mutex<Vec<Step>>>);

#[derive(Debug)]
pub(crate) enum Step {
    Subscribe(String, Inbox),
    Unsubscribe(String),
}

impl Step {
    /// Returns true for a subscription to `channel`, false for an unsubscription, `None` for another channel.
    pub(crate) fn on(&self, channel: &str) -> Option<bool> {
        match self {
            Self::Subscribe(name, _) => (name == channel).then_some(true),
            Self::Unsubscribe(name) => (name == channel).then_some(false),
        }
    }
}

impl Transport for Script {
    fn subscribe(&self, channel: &Arc<str>, inbox: Inbox) {
        self.0.lock().unwrap().push(Step::Subscribe(channel.to_string(), inbox));
    }

    fn unsubscribe(&self, channel: &Arc<str>) {
        self.0.lock().unwrap().push(Step::Unsubscribe(channel.to_string()));
    }
}

impl Script {
    pub(crate) fn registry() -> (Self, Registry<Self>) {
        let script = Self::default();
        (script.clone(), Registry::new(script))
    }

    pub(crate) fn take(&self) -> Vec<Step> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// Takes the requests since the last call, in short form, with the last inbox.
    pub(crate) fn steps(&self) -> (Vec<String>, Option<Inbox>) {
        let mut inbox = None;
        let told = self.take().into_iter().map(|step| match step {
            Step::Subscribe(channel, to) => {
                inbox = Some(to);
                format!("+{channel}")
            }
            Step::Unsubscribe(channel) => format!("-{channel}"),
        });
        (told.collect(), inbox)
    }

    pub(crate) fn inbox(&self) -> Inbox {
        self.steps().1.expect("a subscription was made")
    }
}

pub(crate) fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Consumes a notification; true if the latch had any for this wait.
pub(crate) fn answers<'a>(wait: Pin<&mut impl Future<Output = Notification<'a>>>) -> bool {
    match poll(wait) {
        Poll::Ready(call) => {
            call.consume();
            true
        }
        Poll::Pending => false,
    }
}
