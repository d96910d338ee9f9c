//! `memory:` — the reference backend, for tests and for the tasks of one process.
//!
//! A lock is an ordered queue of claims, those at its head hold it. Release hands over: the step
//! that frees the name grants it to the next in line and wakes only those.
//!
//! # A store that fails on demand
//! To see what your program does when its store is out of reach, have [`Memory::fail`] or
//! [`Memory::pause`] break it, and [`Memory::resume`] mend it:
//!
//! ```
//! # use lockkeeper::{ErrorKind, Keeper, LossReason, backend::memory::Memory};
//! # use std::{sync::Arc, time::Duration};
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
//! let store = Arc::new(Memory::new());
//! let keeper = Keeper::new(store.clone())?;
//! let guard = keeper.lock("orders/42").ttl(Duration::from_millis(600)).acquire().await?;
//!
//! store.fail(); // no request is answered from here on
//! let refused = keeper.lock("orders/43").try_acquire().await.unwrap_err();
//! assert_eq!(refused.kind(), ErrorKind::Unavailable);
//! guard.lost().await; // in time, by our own clock
//! assert_eq!(guard.lost_reason(), Some(LossReason::Expired));
//!
//! store.resume();
//! assert!(keeper.lock("orders/43").try_acquire().await?.is_some());
//! # Ok(()) }
//! ```

mod faults;
mod inspect;
mod table;

use crate::backend::support::sync::lock;
use crate::backend::{
    Alarm, Backend, Capability, Claim, FencingToken, Finding, Grant, Inspector, Lease, LossReason,
    Moment, Name, Patience, Release, Reserve, Reserved, Sequencer, Standing, Subject, Ticket,
    check_record,
};
use crate::error::Result;
use async_trait::async_trait;
use faults::Faults;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};
use table::{Asked, Table};
use tokio::sync::Notify;

/// A store in this process's memory. Keepers made from clones of one `Arc` share its locks.
#[derive(Debug, Default)]
pub struct Memory {
    table: Arc<Mutex<Table>>,
    /// A claim will end earlier than its waiters were counting on.
    sooner: Arc<Notify>,
    faults: Arc<Faults>,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on every request fails with [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable),
    /// as if the way to a server were cut; also those of claims that wait. What is in the store stays
    /// there, and runs out as always.
    pub fn fail(&self) {
        self.faults.fail();
    }

    /// From now on every request hangs, and is carried out when the store [resumes](Self::resume): a
    /// server that was stopped, or a network that loses everything.
    pub fn pause(&self) {
        self.faults.pause();
    }

    /// Ends what [`fail`](Self::fail) or [`pause`](Self::pause) began.
    pub fn resume(&self) {
        self.faults.resume();
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    fn grant(&self, claim: &Claim, token: FencingToken, sent: Moment) -> Grant {
        let lease = Box::new(self.lease(Ticket::of(claim).with_token(Some(token))));
        Grant { lease, token: Some(token), sent, valid_for: claim.ttl }
    }

    fn lease(&self, ticket: Ticket) -> MemoryLease {
        let (table, sooner, faults) =
            (self.table.clone(), self.sooner.clone(), self.faults.clone());
        MemoryLease { table, sooner, faults, ticket }
    }
}

#[async_trait]
impl Backend for Memory {
    fn capability(&self) -> Capability {
        crate::recipes::MEMORY
    }

    fn recipe(&self) -> &'static str {
        "queue"
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        self.faults.pass().await?;
        let asked = self.table().ask(claim, !patience.is_over())?;
        let mut granted = match asked {
            Asked::Granted(token, sent) => return Ok(Some(self.grant(claim, token, sent))),
            Asked::Busy => return Ok(None),
            Asked::Queued(granted, place) => {
                patience.queued(place);
                granted
            }
        };
        loop {
            let sooner = self.sooner.notified();
            let expiry = self.table().next_expiry(&claim.name);
            tokio::select! {
                biased;
                Ok((token, sent)) = &mut granted => {
                    self.faults.pass().await?;
                    return Ok(Some(self.grant(claim, token, sent)));
                }
                error = self.faults.failing() => return Err(error),
                () = patience.over() => {
                    self.faults.pass().await?;
                    granted.close();
                    let place = self.table().leave(claim);
                    place.into_iter().for_each(|place| patience.queued(place));
                    // Granted in the moment of leaving: then it is ours.
                    let granted = granted.try_recv().ok();
                    return Ok(granted.map(|(token, sent)| self.grant(claim, token, sent)));
                }
                () = expiry.reached() => self.table().advance(&claim.name),
                () = sooner => {}
            }
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.faults.pass().await?;
        let mut table = self.table();
        table.leave(claim);
        table.release(&Ticket::of(claim), Duration::ZERO);
        Ok(())
    }

    /// There is no server to ask, and so no round trip.
    async fn checkup(&self) -> Result<Vec<Finding>> {
        Ok(vec![
            Finding::fine(Subject::Version, "the memory of this process"),
            Finding::warning(
                Subject::Persistence,
                "locks end with this process, and exclude no other",
                "for locks between processes use another store, such as sqlite:",
            ),
        ])
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }

    fn sequencer(&self) -> Option<&dyn Sequencer> {
        Some(self)
    }

    fn lease_of(&self, ticket: &Ticket) -> Option<Box<dyn Lease>> {
        Some(Box::new(self.lease(ticket.clone())))
    }
}

#[async_trait]
impl Sequencer for Memory {
    async fn reserve(&self, name: &Name, wish: &Reserve) -> Result<Reserved> {
        self.faults.pass().await?;
        let mut table = self.table();
        let last = table.sequences.get(name).copied();
        let reserved = Reserved::of(last, wish);
        if let Reserved::From(first) = reserved {
            let last = first + u64::from(wish.count.max(1)) - 1;
            table.sequences.insert(name.clone(), last);
        }
        Ok(reserved)
    }

    async fn read(&self, name: &Name) -> Result<Option<String>> {
        self.faults.pass().await?;
        Ok(self.table().records.get(name).cloned())
    }

    async fn write(&self, name: &Name, value: &str, expected: Option<&str>) -> Result<bool> {
        check_record(value)?;
        self.faults.pass().await?;
        let mut table = self.table();
        let matches = table.records.get(name).map(String::as_str) == expected;
        if matches {
            table.records.insert(name.clone(), value.to_owned());
        }
        Ok(matches)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Name, String)>> {
        self.faults.pass().await?;
        let table = self.table();
        let from = table.records.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let of_prefix = from.take_while(|(name, _)| name.as_str().starts_with(prefix));
        Ok(of_prefix.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    async fn time(&self) -> Result<Option<SystemTime>> {
        self.faults.pass().await?;
        Ok(Some(SystemTime::now()))
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory:")
    }
}

#[derive(Debug)]
struct MemoryLease {
    table: Arc<Mutex<Table>>,
    sooner: Arc<Notify>,
    faults: Arc<Faults>,
    ticket: Ticket,
}

#[async_trait]
impl Lease for MemoryLease {
    async fn renew(&mut self) -> Result<Standing> {
        self.faults.pass().await?;
        let now = Moment::now();
        let mut table = lock(&self.table);
        Ok(match table.held(&self.ticket) {
            Some(held) if now < held.expires && !held.stays => {
                // Not less than another that has the claim was told.
                held.expires = held.expires.max(now + self.ticket.ttl);
                Standing::Held
            }
            _ => Standing::Lost(LossReason::Gone),
        })
    }

    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        self.faults.pass().await?;
        let released = lock(&self.table).release(&self.ticket, how.stay());
        if !how.stay().is_zero() {
            self.sooner.notify_waiters();
        }
        if released { Ok(()) } else { Err(LossReason::Gone.to_error()) }
    }

    fn watch(&mut self, alarm: Alarm) {
        let gone = match lock(&self.table).held(&self.ticket) {
            Some(held) => {
                held.alarms.push(alarm);
                None
            }
            None => Some(alarm),
        };
        // Broken since the grant, perhaps granted to another: nobody else would say so.
        if let Some(alarm) = gone {
            alarm.ring(LossReason::Gone);
        }
    }

    fn guards_changed(&mut self, guards: usize) {
        if let Some(held) = lock(&self.table).held(&self.ticket) {
            held.count = guards;
        }
    }
}
