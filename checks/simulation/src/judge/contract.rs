//! `Backend`: "A client never uses an id again that it has released", and "An attempt that may come late is
//! undone by `roll_back`". And `Transport`: "one channel is never subscribed to twice at a time, and not
//! unsubscribed from once it has failed". A client's breach shows only if a store takes advantage, so the
//! store itself reports breaches.

use super::Judge;
use crate::stage::View;
use crate::store::Store;

#[derive(Default)]
pub(crate) struct Contract;

impl<S: Store> Judge<S> for Contract {
    fn name(&self) -> &'static str {
        "contract"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        view.store.breach()
    }
}
