//! Read-write locks of [`Redis`].

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
        // What only those use who change something is not there.
        let args = ["", "", "", "", "", "", "", "", &*leases, ""];
        let keys = [name.as_str()];
        let in_full = || self.scripts.read_write_holders.eval(&keys, &args);
        let request = self.request(&self.scripts.read_write_holders, &keys, &args, &in_full);
        match self.router.send(request).await?.0 {
            Found::Mode(mode) => Err(Error::other_kind(name, &mode)),
            Found::Holders(writer, readers) => {
                let holder = |(id, left): (String, _)| Holder { id: id.parse().ok(), left: duration(left) };
                let readers = readers.into_iter().map(holder).collect();
                Ok(ReadWriteHolders { writer: writer.map(holder), readers })
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
        let (reply, sent): (i64, Sent) =
            self.send_words(router, &self.scripts.read_release, &words, true).await?;
        // Or the first sending has ended it. (That it was lost before then cannot be told from that, and comes to the same.)
        Ok(self.released(kind, name, reply) || sent == Sent::Again)
    }
}

/// What `read_write_holders.lua` returns: ids with the time that their leases last, in ms.
enum Found {
    Holders(Option<(String, i64)>, Vec<(String, i64)>),
    /// The text of the field `mode`, which names another kind of lock.
    Mode(String),
}

impl FromRedisValue for Found {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        match value {
            Value::Array(_) => {
                let mut all = Vec::<Option<(String, i64)>>::from_redis_value(value)?.into_iter();
                Ok(Self::Holders(all.next().flatten(), all.flatten().collect()))
            }
            mode => Ok(Self::Mode(String::from_redis_value(mode)?)),
        }
    }
}
