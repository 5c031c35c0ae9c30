//! Read-write locks of [`Redis`].

use std::collections::HashSet;
use std::time::Duration;

use ::redis::{FromRedisValue, ParsingError, Value};

use crate::lock::{
    AcquireOutcome, FairReleaseOutcome, Holder, LeaseId, LeaseKey, LockName, Moment, Next, Position,
    ReadRequest, ReadWriteBackend, ReadWriteHolders,
};

use super::backend::{Redis, Renewal, duration, millis};
use super::connection::Error;
use super::keys;
use super::queue::{Call, Kind, counter, kept};
use super::scripts::Reply;
use super::topology::{Router, Sent};

impl ReadWriteBackend for Redis {
    fn read_write_channel(&self, name: &LockName) -> String {
        keys::listened(name.as_str(), keys::read_write_channel(name.as_str()))
    }

    fn write_grant_channel(&self, name: &LockName, client: &str) -> String {
        keys::write_grants(name.as_str()) + client
    }

    fn write_grants_suffice(&self) -> bool {
        // Of a lease that a release has granted no replica need have heard.
        self.acquisitions.is_none()
    }

    async fn try_write(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        position: Option<Position>,
        _now: Moment,
    ) -> Result<AcquireOutcome, Error> {
        self.take(Kind::ReadWrite, name, id, lease, tokens, position).await
    }

    async fn release_write(
        &self,
        name: &LockName,
        id: &LeaseId,
        next: Option<&Next>,
    ) -> Result<FairReleaseOutcome, Error> {
        self.pass_on(Kind::ReadWrite, &self.router, name, id, next).await
    }

    async fn roll_back_write(&self, name: &LockName, id: &LeaseId) -> Result<FairReleaseOutcome, Error> {
        self.pass_on(Kind::ReadWrite, self.attempts(), name, id, None).await
    }

    async fn try_read(
        &self,
        name: &LockName,
        id: &LeaseId,
        read: &ReadRequest<'_>,
        _now: Moment,
    ) -> Result<AcquireOutcome, Error> {
        let under = read.under.map(LeaseId::to_string).unwrap_or_default();
        let fenced = if read.fenced { "1" } else { "" };
        let own = [millis(read.lease), id.to_string(), under, fenced.to_owned(), kept(read.position)];
        let mut keys = vec![keys::read_lease(name.as_str(), id)];
        keys.extend(counter(name, u64::from(read.fenced)));
        let (kind, position) = (Kind::ReadWrite, read.position);
        let words = self.words(Call { kind, name, releases: false, keys, own, position });
        self.attempt_words(&self.scripts.read_acquire, &words, name, id).await
    }

    async fn release_read(&self, name: &LockName, id: &LeaseId) -> Result<bool, Error> {
        self.end_read(&self.router, name, id).await
    }

    async fn roll_back_read(&self, name: &LockName, id: &LeaseId) -> Result<bool, Error> {
        self.end_read(self.attempts(), name, id).await
    }

    async fn renew_writes(&self, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, Error> {
        self.renew_all(Renewal::Writes, leases, lease).await
    }

    async fn renew_reads(&self, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, Error> {
        self.renew_all(Renewal::Reads, leases, lease).await
    }

    async fn force_release_read_write(&self, name: &LockName) -> Result<bool, Error> {
        self.force(Kind::ReadWrite, name).await
    }

    async fn read_write_holders(&self, name: &LockName) -> Result<ReadWriteHolders, Error> {
        let leases = keys::read_leases(name.as_str());
        let holder = |(id, left): (String, _)| Holder { id: id.parse().ok(), left: duration(left) };
        let (mut seen, mut holders) = (HashSet::new(), ReadWriteHolders::default());
        let mut from = ("0".to_owned(), "0".to_owned());
        loop {
            // What only those use who change something is not there.
            let args = ["", "", "", "", "", "", "", "", &*leases, "", &*from.0, &*from.1];
            let keys = [name.as_str()];
            let in_full = || self.scripts.read_write_holders.eval(&keys, &args);
            let request = self.request(&self.scripts.read_write_holders, &keys, &args, &in_full);
            let page = match self.router.send(request).await?.0 {
                Found::Mode(mode) => return Err(Error::other_kind(name, &mode)),
                Found::Page(page) => page,
            };
            holders.writer = page.writer.map(holder);
            // A hash that grows or shrinks meanwhile may show a field twice.
            let new = page.readers.into_iter().filter(|(id, _)| seen.insert(id.clone()));
            holders.readers.extend(new.map(holder));
            match page.next {
                Some(next) => from = next,
                None => return Ok(holders),
            }
        }
    }
}

impl Redis {
    async fn end_read(&self, router: &Router, name: &LockName, id: &LeaseId) -> Result<bool, Error> {
        let did_read = self.end_read_once(router, name, id).await?;
        self.undo_late(router, name, id, |redis, router, name, id| {
            Box::pin(async move { redis.end_read_once(router, name, id).await.unwrap_or(false) })
        });
        Ok(did_read)
    }

    async fn end_read_once(&self, router: &Router, name: &LockName, id: &LeaseId) -> Result<bool, Error> {
        let keys = vec![keys::read_lease(name.as_str(), id)];
        let (kind, own) = (Kind::ReadWrite, [id.to_string()]);
        let words = self.words(Call { kind, name, releases: true, keys, own, position: None });
        let (reply, sent) = self.send_words(router, &self.scripts.read_release, &words, true).await?;
        let Reply::Number(reply) = reply else { unreachable!("it answers by numbers") };
        // Or the first sending has ended it. (That it was lost before then cannot be told from that, and comes to the same.)
        Ok(self.released(kind, name, reply) || sent == Sent::Again)
    }
}

/// What `read_write_holders.lua` returns.
enum Found {
    Page(Page),
    /// The text of the field `mode`, which names another kind of lock.
    Mode(String),
}

/// Ids with the time that their leases last, in ms.
struct Page {
    writer: Option<(String, i64)>,
    readers: Vec<(String, i64)>,
    /// Where the next one begins.
    next: Option<(String, String)>,
}

impl FromRedisValue for Found {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let Value::Array(all) = value else { return Ok(Self::Mode(String::from_redis_value(value)?)) };
        let mut all = all.into_iter();
        Ok(Self::Page(Page {
            writer: FromRedisValue::from_redis_value(all.next().unwrap_or(Value::Nil))?,
            next: FromRedisValue::from_redis_value(all.next().unwrap_or(Value::Nil))?,
            readers: all.map(FromRedisValue::from_redis_value).collect::<Result<_, _>>()?,
        }))
    }
}
