//! Descriptions of calls for judges.

use crate::stage::{Call, View};
use crate::store::Store;
use crate::task::operation_words;

pub(super) fn words<S: Store>(view: &View<'_, S>, call: &Call) -> String {
    format!("p{}t{} {}", call.member, call.task, operation_words(view.program, &call.op))
}
