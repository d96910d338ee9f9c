//! `recipe=set-nx-px`: `SET name value NX PX ttl`.
//!
//! The key is the lock's name as it is, the value is the claim's id, and a renewal or a release
//! compares the value first, in a script. So it excludes redis-py, redsync, rslock, node-redlock and
//! others that do the same on the same key.
//!
//! ```text
//!   acquire   SET name id NX PX ttl    OK: held. Nil: taken, perhaps by this very claim, if the
//!             keep.lua                 first answer was lost: keep.lua tells, and renews it then
//!   renew     keep.lua                 if the value is ours: PEXPIRE
//!   release   release.lua              if the value is ours: DEL
//! ```
//!
//! | what if | then |
//! |---|---|
//! | a holder dies | the key ends with its ttl |
//! | a holder is late | its renewal and release find another value, and change nothing |
//! | the server forgets the key | the next gets in; the holder finds out by its next renewal |
//! | the key is not a string | an error that says so: some other program uses the name |
//!
//! What the layout has no room for is not offered: no tokens, no shared mode, no order among those that
//! wait. A counter for tokens was rejected: the other libraries on the same key would not count.

use super::client::Script;
use super::error::unexpected;
use super::single_key::SingleKeys;
use crate::backend::support::alarms::{Alarms, OwnAlarm};
use crate::backend::{
    Alarm, Backend, Capability, Claim, Finding, Grant, Lease, LossReason, Moment, Name, Patience,
    Release, Standing, Ticket,
};
use crate::error::{Error, ErrorKind, Result};
use async_trait::async_trait;
use redis::Value;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// One key per lock.
#[derive(Debug)]
pub(super) struct SetNxPx {
    shared: Arc<Shared>,
}

/// What a backend and its leases share.
#[derive(Debug)]
struct Shared {
    keys: Arc<SingleKeys>,
    keep: Script,
    release: Script,
    /// Of the claims that are held, for when the connection breaks. Nobody tells of a loss here.
    alarms: Arc<Alarms>,
}

/// To whom the key belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Ours,
    Others,
    /// Not a string: nothing that a lock of this layout left there.
    NoLock,
}

impl SetNxPx {
    /// Asks nothing of the server: the first claim finds out whether it is there.
    pub(super) fn open(keys: Arc<SingleKeys>) -> Self {
        let keep = Script::new(include_str!("keep.lua"));
        let release = Script::new(include_str!("release.lua"));
        let alarms = Arc::new(Alarms::default());
        let endangered = alarms.clone();
        keys.client.lost.register(move || endangered.endanger());
        Self { shared: Arc::new(Shared { keys, keep, release, alarms }) }
    }

    /// The grant of a claim whose key was set by a request sent at `sent`.
    fn grant(&self, key: String, claim: &Claim, sent: Moment) -> Grant {
        let (shared, id) = (self.shared.clone(), claim.id.to_string());
        let (ttl, by_ticket, alarm) = (claim.ttl, false, OwnAlarm::default());
        let lease = SetNxPxLease { shared, key, id, ttl, by_ticket, alarm };
        Grant { lease: Box::new(lease), token: None, sent, valid_for: claim.ttl }
    }
}

#[async_trait]
impl Backend for SetNxPx {
    fn capability(&self) -> Capability {
        crate::recipes::REDIS_SET_NX_PX
    }

    fn recipe(&self) -> &'static str {
        "set-nx-px"
    }

    async fn acquire(&self, claim: &Claim, _: &Patience) -> Result<Option<Grant>> {
        let key = self.shared.keys.of(&claim.name);
        let (id, ttl) = (claim.id.to_string(), millis(claim.ttl));
        let sent = Moment::now();
        match self.shared.keys.command("SET", &[&key, &id, "NX", "PX", &ttl]).await? {
            Value::Okay => return Ok(Some(self.grant(key, claim, sent))),
            Value::Nil => {}
            other => return Err(unexpected(&other)),
        }
        // Taken; perhaps by ourselves, if the command was sent twice because the first answer
        // was lost. Not `SET … NX GET`, which would say so at once: Redis 6.2 has no such thing.
        let sent = Moment::now();
        match self.shared.keep(&key, &id, claim.ttl, claim.by_id).await? {
            Kept::Ours => Ok(Some(self.grant(key, claim, sent))),
            Kept::Others => Ok(None),
            Kept::NoLock => Err(Error::new(
                ErrorKind::Store,
                format!(
                    "the key {key:?} of {} holds something that is no lock of this recipe: choose \
                     another name, or a prefix in the URL",
                    self.shared.keys.url
                ),
            )),
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let key = self.shared.keys.of(&claim.name);
        self.shared.release(&key, &claim.id.to_string(), Duration::ZERO).await.map(|_| ())
    }

    /// Ends the connection, with its task.
    async fn close(&self) -> Result<()> {
        self.shared.keys.client.close();
        Ok(())
    }

    fn lease_of(&self, ticket: &Ticket) -> Option<Box<dyn Lease>> {
        let (shared, key) = (self.shared.clone(), self.shared.keys.of(&ticket.name));
        let (id, ttl) = (ticket.id.to_string(), ticket.ttl);
        let (by_ticket, alarm) = (true, OwnAlarm::default());
        Some(Box::new(SetNxPxLease { shared, key, id, ttl, by_ticket, alarm }))
    }

    fn keys(&self, name: &Name) -> Vec<String> {
        vec![self.shared.keys.of(name)]
    }

    async fn incarnation(&self) -> Result<Option<String>> {
        super::incarnation(&self.shared.keys.client).await
    }

    async fn checkup(&self) -> Result<Vec<Finding>> {
        super::checkup::checkup(&self.shared.keys.client).await
    }

    async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        super::checkup::round_trips(&self.shared.keys.client, count).await
    }
}

impl fmt::Display for SetNxPx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (set-nx-px)", self.shared.keys.url)
    }
}

/// A held claim: all that is needed to keep it is the key and the id, so that any keeper can.
#[derive(Debug)]
struct SetNxPxLease {
    shared: Arc<Shared>,
    key: String,
    id: String,
    ttl: Duration,
    /// Others may have the claim, too.
    by_ticket: bool,
    alarm: OwnAlarm,
}

impl SetNxPxLease {
    /// Takes the alarm of this lease away, if there is one.
    fn unwatch(&mut self) {
        self.alarm.unwatch(&self.shared.alarms, &self.id);
    }
}

#[async_trait]
impl Lease for SetNxPxLease {
    async fn renew(&mut self) -> Result<Standing> {
        Ok(match self.shared.keep(&self.key, &self.id, self.ttl, self.by_ticket).await? {
            Kept::Ours => Standing::Held,
            Kept::Others | Kept::NoLock => Standing::Lost(LossReason::Gone),
        })
    }

    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        self.unwatch();
        match self.shared.release(&self.key, &self.id, how.stay()).await? {
            true => Ok(()),
            false => Err(LossReason::Gone.to_error()),
        }
    }

    fn watch(&mut self, alarm: Alarm) {
        self.alarm.watch(&self.shared.alarms, &self.id, alarm);
    }
}

impl Drop for SetNxPxLease {
    fn drop(&mut self) {
        // A detached claim has no holder to alarm.
        self.unwatch();
    }
}

impl Shared {
    /// Gives the claim its whole ttl if the key is its own; by a ticket never less than it has. Idempotent.
    async fn keep(&self, key: &str, id: &str, ttl: Duration, by_ticket: bool) -> Result<Kept> {
        let ttl = millis(ttl);
        let by_ticket: &[u8] = if by_ticket { b"1" } else { b"0" };
        let arguments = [id.as_bytes(), ttl.as_bytes(), by_ticket];
        match self.keys.client.call(&self.keep, &[key], &arguments).await? {
            Value::Int(1) => Ok(Kept::Ours),
            Value::Int(0) => Ok(Kept::Others),
            Value::Int(-1) => Ok(Kept::NoLock),
            other => Err(unexpected(&other)),
        }
    }

    /// Gives the claim back; whether it was there, as far as that is known: a repeated request cannot
    /// tell, and says yes.
    async fn release(&self, key: &str, id: &str, stay: Duration) -> Result<bool> {
        let stay = millis(stay);
        let first = [id.as_bytes(), stay.as_bytes(), b"0"];
        let again = [id.as_bytes(), stay.as_bytes(), b"1"];
        let answer = self.keys.client.call_telling(&self.release, &[key], &first, &again).await?;
        Ok(answer != Value::Int(0))
    }
}

/// In whole milliseconds, rounded up: a lock lingers no shorter than it was asked to.
fn millis(time: Duration) -> String {
    time.as_nanos().div_ceil(1_000_000).to_string()
}
