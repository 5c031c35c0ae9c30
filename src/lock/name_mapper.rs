//! [`NameMapper`]: under which name the store keeps what its user calls otherwise.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Under which name the store keeps what its user calls otherwise. By default under the same.
#[derive(Clone, Default)]
pub(super) struct NameMapper(Option<Arc<Map>>);

type Map = dyn Fn(&str) -> String + Send + Sync;

impl NameMapper {
    pub(super) fn new(map: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(map)))
    }

    pub(super) fn map<'a>(&self, name: &'a str) -> Cow<'a, str> {
        self.0.as_ref().map_or(Cow::Borrowed(name), |map| Cow::Owned(map(name)))
    }
}

impl fmt::Debug for NameMapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "NameMapper(..)" } else { "NameMapper(same)" })
    }
}
