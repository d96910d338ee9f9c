//! Finding a claim by its id, whichever process made it.

use super::Asked;
use crate::backend::sqlite::client::transaction::Transaction;
use crate::backend::sqlite::queue::Queue;
use crate::backend::sqlite::record::{HELD, WAITER_LEASE, WAITING, millis};
use crate::backend::{Claim, Standing};
use rusqlite::{Result, params};
use std::time::Duration;

impl Transaction<'_> {
    /// What became of a claim that was asked for by its id before; `None` if it is not there. From now
    /// on it is looked after by this process, which asked last.
    pub(super) fn found(
        &self,
        queue: &Queue<'_>,
        claim: &Claim,
        may_queue: bool,
    ) -> Result<Option<Asked>> {
        let id = claim.id.to_string();
        let is_it = |record: &&_| -> bool {
            let record: &super::Record = record;
            record.id == id && !record.stays() && (record.holds() || record.state == WAITING)
        };
        let Some(record) = queue.records.iter().find(is_it) else { return Ok(None) };
        if (record.mode, record.ttl) != (claim.mode, millis(claim.ttl)) {
            return Ok(Some(Asked::OtherTerms(record.mode, record.ttl)));
        }
        let (state, expires, asked) = if record.state == WAITING {
            if !may_queue {
                return Ok(Some(Asked::Busy));
            }
            let before = |it: &&super::Record| it.state == WAITING && it.ticket <= record.ticket;
            let place = queue.records.iter().filter(before).count();
            let first = queue.records.iter().map(|record| record.expires).min();
            let until_expiry = first.map_or(0, |first| first - self.now);
            (WAITING, self.now + millis(WAITER_LEASE), Asked::Queued { place, until_expiry })
        } else {
            // Less than a ttl is left, or just that: it is the longest that anyone kept the claim for.
            (HELD, self.now + record.ttl, Asked::Granted(record.granted(self.sent)))
        };
        self.connection
            .prepare_cached(
                "UPDATE claim SET process = ?3, state = ?4, expires = ?5
                 WHERE name = ?1 AND ticket = ?2",
            )?
            .execute(params![claim.name.as_str(), record.ticket, self.process, state, expires])?;
        Ok(Some(asked))
    }

    /// As [`renew`](Self::renew), of a claim that this process looks after from now on: it is told when
    /// the claim is broken.
    pub(in crate::backend::sqlite) fn take_over(
        &self,
        name: &str,
        id: &str,
        ttl: Duration,
    ) -> Result<Standing> {
        let standing = self.renew(name, None, id, ttl)?;
        if standing == Standing::Held {
            self.connection
                .prepare_cached(
                    "UPDATE claim SET process = ?3 WHERE name = ?1 AND id = ?2 AND state = 1",
                )?
                .execute(params![name, id, self.process])?;
        }
        Ok(standing)
    }
}
