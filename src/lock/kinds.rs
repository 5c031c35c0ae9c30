//! The kinds of locks beside the plain one, each by the trait of a backend that can keep it.

use std::marker::PhantomData;
use std::time::Duration;

use crate::fault::fault;

use super::backend::{AcquireOutcome, Holder, LeaseKey};
use super::commands::{Answer, Ask, Commands, Kind, KindCommands};
use super::fair::{FairBackend, FairReleaseOutcome, Next};
use super::name::LockName;
use super::owner::LeaseId;
use super::read_write::{ReadRequest, ReadWriteBackend};

pub(super) fn fair<B: FairBackend>() -> Commands<B> {
    Commands::Of(&Fair(PhantomData))
}

pub(super) fn read<B: ReadWriteBackend>() -> Commands<B> {
    Commands::Of(&Read(PhantomData))
}

pub(super) fn write<B: ReadWriteBackend>() -> Commands<B> {
    Commands::Of(&Write(PhantomData))
}

struct Fair<B>(PhantomData<fn() -> B>);

impl<B: FairBackend> KindCommands<B> for Fair<B> {
    fn kind(&self) -> Kind {
        Kind::Fair
    }

    fn channel(&self, backend: &B, name: &LockName, client: &str) -> String {
        backend.grant_channel(name, client)
    }

    fn common_channel(&self, backend: &B, name: &LockName) -> Option<String> {
        backend.foreign_channel(name)
    }

    fn grants_suffice(&self, backend: &B) -> bool {
        backend.grants_suffice()
    }

    fn try_acquire<'a>(
        &self,
        backend: &'a B,
        name: &'a LockName,
        ask: &'a Ask,
    ) -> Answer<'a, B, AcquireOutcome> {
        let Ask { id, lease, tokens, position, sent, .. } = ask;
        Box::pin(backend.try_acquire_fair(name, id, *lease, *tokens, *position, *sent))
    }

    fn release<'a>(
        &self,
        backend: &'a B,
        name: &'a LockName,
        id: &'a LeaseId,
        next: Option<&'a Next>,
    ) -> Answer<'a, B, FairReleaseOutcome> {
        Box::pin(backend.release_fair(name, id, next))
    }

    fn roll_back<'a>(
        &self,
        backend: &'a B,
        name: &'a LockName,
        id: &'a LeaseId,
    ) -> Answer<'a, B, FairReleaseOutcome> {
        Box::pin(backend.roll_back_fair(name, id))
    }

    fn renew<'a>(&self, backend: &'a B, leases: &'a [LeaseKey], lease: Duration) -> Answer<'a, B, Vec<bool>> {
        Box::pin(backend.renew(leases, lease))
    }

    fn force_release<'a>(&self, backend: &'a B, name: &'a LockName) -> Answer<'a, B, bool> {
        Box::pin(backend.force_release_fair(name))
    }

    fn holders<'a>(&self, backend: &'a B, name: &'a LockName) -> Answer<'a, B, Vec<Holder>> {
        Box::pin(async { backend.holder(name).await.map(Vec::from_iter) })
    }
}

struct Write<B>(PhantomData<fn() -> B>);

impl<B: ReadWriteBackend> KindCommands<B> for Write<B> {
    fn kind(&self) -> Kind {
        Kind::Write
    }

    fn channel(&self, backend: &B, name: &LockName, client: &str) -> String {
        backend.write_grant_channel(name, client)
    }

    fn common_channel(&self, backend: &B, name: &LockName) -> Option<String> {
        Some(backend.read_write_channel(name))
    }

    fn grants_suffice(&self, backend: &B) -> bool {
        backend.write_grants_suffice()
    }

    fn try_acquire<'a>(
        &self,
        backend: &'a B,
        name: &'a LockName,
        ask: &'a Ask,
    ) -> Answer<'a, B, AcquireOutcome> {
        let Ask { id, lease, tokens, position, sent, .. } = ask;
        Box::pin(backend.try_write(name, id, *lease, *tokens, *position, *sent))
    }

    fn release<'a>(
        &self,
        backend: &'a B,
        name: &'a LockName,
        id: &'a LeaseId,
        next: Option<&'a Next>,
    ) -> Answer<'a, B, FairReleaseOutcome> {
        Box::pin(backend.release_write(name, id, next))
    }

    fn roll_back<'a>(
        &self,
        backend: &'a B,
        name: &'a LockName,
        id: &'a LeaseId,
    ) -> Answer<'a, B, FairReleaseOutcome> {
        Box::pin(backend.roll_back_write(name, id))
    }

    fn renew<'a>(&self, backend: &'a B, leases: &'a [LeaseKey], lease: Duration) -> Answer<'a, B, Vec<bool>> {
        Box::pin(backend.renew_writes(leases, lease))
    }

    fn force_release<'a>(&self, backend: &'a B, name: &'a LockName) -> Answer<'a, B, bool> {
        Box::pin(backend.force_release_read_write(name))
    }

    fn holders<'a>(&self, backend: &'a B, name: &'a LockName) -> Answer<'a, B, Vec<Holder>> {
        Box::pin(async { Ok(Vec::from_iter(backend.read_write_holders(name).await?.writer)) })
    }
}

struct Read<B>(PhantomData<fn() -> B>);

impl<B: ReadWriteBackend> KindCommands<B> for Read<B> {
    fn kind(&self) -> Kind {
        Kind::Read
    }

    fn channel(&self, backend: &B, name: &LockName, _client: &str) -> String {
        backend.read_write_channel(name)
    }

    fn grants_suffice(&self, _backend: &B) -> bool {
        false
    }

    fn try_acquire<'a>(
        &self,
        backend: &'a B,
        name: &'a LockName,
        ask: &'a Ask,
    ) -> Answer<'a, B, AcquireOutcome> {
        let Ask { id, lease, tokens, position, under, sent } = ask;
        Box::pin(async move {
            let under = under.as_ref().filter(|_| !fault!(ReadsAsAStranger));
            let read = ReadRequest { lease: *lease, fenced: *tokens > 0, position: *position, under };
            backend.try_read(name, id, &read, *sent).await
        })
    }

    fn release<'a>(
        &self,
        backend: &'a B,
        name: &'a LockName,
        id: &'a LeaseId,
        _next: Option<&'a Next>,
    ) -> Answer<'a, B, FairReleaseOutcome> {
        Box::pin(async { backend.release_read(name, id).await.map(released) })
    }

    fn roll_back<'a>(
        &self,
        backend: &'a B,
        name: &'a LockName,
        id: &'a LeaseId,
    ) -> Answer<'a, B, FairReleaseOutcome> {
        if fault!(ReadsRolledBackAsWrites) {
            return Box::pin(backend.roll_back_write(name, id));
        }
        Box::pin(async { backend.roll_back_read(name, id).await.map(released) })
    }

    fn renew<'a>(&self, backend: &'a B, leases: &'a [LeaseKey], lease: Duration) -> Answer<'a, B, Vec<bool>> {
        if fault!(ReadsRenewedAsWrites) {
            return Box::pin(backend.renew_writes(leases, lease));
        }
        Box::pin(backend.renew_reads(leases, lease))
    }

    fn force_release<'a>(&self, backend: &'a B, name: &'a LockName) -> Answer<'a, B, bool> {
        Box::pin(backend.force_release_read_write(name))
    }

    fn holders<'a>(&self, backend: &'a B, name: &'a LockName) -> Answer<'a, B, Vec<Holder>> {
        Box::pin(async { Ok(backend.read_write_holders(name).await?.readers) })
    }
}

fn released(did_read: bool) -> FairReleaseOutcome {
    if did_read { FairReleaseOutcome::Released } else { FairReleaseOutcome::NotHeld }
}
