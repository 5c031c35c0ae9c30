//! Renewals in a Cluster: one script touches one slot only, so there is a command for each slot, and they go out together.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};

use crate::runtime::Runtime;

use super::super::commands::{Request, Sent};
use super::super::error::Error;
use super::super::scripts::Script;
use super::super::{LeaseKey, RENEWALS_PER_COMMAND, SHORTEST_RENEWAL, millis};
use super::{Cluster, Failed, Terms, slot};

/// How many commands are under way at a time.
const COMMANDS: usize = 64;

impl Cluster {
    /// As `Backend::renew`. The first that fails ends it for all: they are asked for together because
    /// they are with the same node.
    pub(crate) async fn renew(
        &self,
        script: &Script,
        leases: &[LeaseKey],
        lease: Duration,
    ) -> Result<Vec<bool>, Error> {
        // A reply that is lost leaves time to ask once more, over another connection.
        let terms = Terms {
            deadline: self.runtime.now() + (lease / 3).max(SHORTEST_RENEWAL),
            again: true,
            patient: false,
        };
        let lease = &*millis(lease);
        let mut by_slot: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (index, key) in leases.iter().enumerate() {
            by_slot.entry(slot::slot(key.name.as_str())).or_default().push(index);
        }
        let commands: Vec<Vec<usize>> = by_slot
            .values()
            .flat_map(|indices| indices.chunks(RENEWALS_PER_COMMAND).map(<[usize]>::to_vec))
            .collect();
        let mut answers = stream::iter(commands)
            .map(|indices| async move {
                let renewed = self.renew_slot(script, leases, &indices, lease, terms).await?;
                Ok::<_, Error>((indices, renewed))
            })
            .buffer_unordered(COMMANDS);
        let mut renewed = vec![false; leases.len()];
        while let Some(answer) = answers.next().await {
            let (indices, answer) = answer?;
            for (index, held) in indices.iter().zip(answer) {
                renewed[*index] = held;
            }
        }
        Ok(renewed)
    }

    /// The leases at `indices`, all of one slot.
    async fn renew_slot(
        &self,
        script: &Script,
        leases: &[LeaseKey],
        indices: &[usize],
        lease: &str,
        terms: Terms,
    ) -> Result<Vec<bool>, Error> {
        // While their slot moves, some are with one node and some with the other, which can last. Then each goes by itself.
        match self.renew_together(script, leases, indices, lease, terms).await {
            Ok(renewed) => return Ok(renewed),
            Err(Failed::Otherwise(error)) => return Err(error),
            Err(Failed::Apart(_)) => {}
        }
        let mut renewed = Vec::with_capacity(indices.len());
        for index in indices {
            let alone = std::slice::from_ref(index);
            let patient = Terms { patient: true, ..terms };
            renewed.extend(self.renew_together(script, leases, alone, lease, patient).await?);
        }
        Ok(renewed)
    }

    async fn renew_together(
        &self,
        script: &Script,
        leases: &[LeaseKey],
        indices: &[usize],
        lease: &str,
        terms: Terms,
    ) -> Result<Vec<bool>, Failed> {
        let keys: Vec<&str> = indices.iter().map(|index| leases[*index].name.as_str()).collect();
        let ids: Vec<String> = indices.iter().map(|index| leases[*index].id.to_string()).collect();
        let args: Vec<&str> = std::iter::once(lease).chain(ids.iter().map(|id| &**id)).collect();
        let (renewed, _): (Vec<bool>, Sent) =
            self.route(terms, Request::Script { script, keys: &keys, args: &args }).await?;
        Ok(renewed)
    }
}
