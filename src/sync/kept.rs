//! What an execution of a model keeps until the next one.

use std::any::Any;
use std::cell::RefCell;

// A model's threads all run on one real thread, so this is shared by them. It is std's, which the model
// checker does not see, so it adds no order between them.
std::thread_local! {
    static KEPT: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// Not freed as long as this execution of the model lasts.
pub(super) fn keep<T: 'static>(value: Box<T>) {
    KEPT.with_borrow_mut(|kept| kept.push(value));
}

/// Every execution of a model begins with this.
pub(crate) fn begin_execution() {
    drop(KEPT.take());
}
