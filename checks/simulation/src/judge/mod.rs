//! [`Judge`]: checks a run against sentences of the documentation, quoted at the head of the judge's file.

mod answers;
mod belief;
mod calm;
mod contract;
mod economy;
mod errors;
mod exclusion;
mod forced;
mod kept;
mod leak;
mod length;
mod limits;
mod listing;
mod losses;
mod metrics;
mod nothing_left;
mod order;
mod reentry;
mod refused;
mod restless;
mod service;
mod shutdown;
mod subscriptions;
mod tenure;
mod tokens;
mod told;
mod turns;
mod words;

use crate::stage::{Event, View};
use crate::store::Store;

/// Inspects a run after each step, which polls one task or lets time pass. Each returned text is a failure of
/// the run. Excuses are in [`View::excuses`], lease by lease.
pub(crate) trait Judge<S: Store> {
    /// One word that names the judge's failures.
    fn name(&self) -> &'static str;

    /// Called after each step. Returns a failure in the present state.
    fn look(&mut self, _view: &View<'_, S>) -> Option<String> {
        None
    }

    /// Called for each event of the step, before [`look`](Self::look).
    fn hear(&mut self, _event: &Event, _view: &View<'_, S>) -> Option<String> {
        None
    }

    /// Called at the end of a [`Phase`](crate::stage::Phase), which the view still shows.
    fn phase_ends(&mut self, _view: &View<'_, S>) -> Option<String> {
        None
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) judge: &'static str,
    pub(crate) text: String,
}

/// All judges, in the order of their calls.
pub(crate) fn all<S: Store>() -> Vec<Box<dyn Judge<S>>> {
    vec![
        Box::new(belief::Belief),
        Box::new(exclusion::Exclusion::default()),
        Box::new(leak::Leak::default()),
        Box::new(tokens::Tokens::default()),
        Box::new(limits::Limits),
        Box::new(losses::Losses::default()),
        Box::new(order::Order::default()),
        Box::new(turns::Turns::default()),
        Box::new(tenure::Tenure::default()),
        Box::new(service::Service::default()),
        Box::new(answers::Answers::default()),
        Box::new(contract::Contract),
        Box::new(kept::Kept::default()),
        Box::new(reentry::Reentry::default()),
        Box::new(length::Length),
        Box::new(forced::Forced::default()),
        Box::new(restless::Restless::default()),
        Box::new(errors::Errors),
        Box::new(metrics::Sums::default()),
        Box::new(nothing_left::NothingLeft),
        Box::new(refused::Refused::default()),
        Box::new(shutdown::Shutdown::default()),
        Box::new(told::Told::default()),
        Box::new(subscriptions::Subscriptions::default()),
        Box::new(economy::Economy::default()),
        Box::new(listing::Listing::default()),
    ]
}
