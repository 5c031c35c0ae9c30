//! `Backend`: "A client never uses an id again that it has released", and "An attempt that may come late is
//! undone by `roll_back`". And `Transport`: "one channel is never subscribed to twice at a time, and not
//! unsubscribed from once it has failed". What a client breaks of this hurts only by what a store may make of
//! it, so the store itself says so.

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
