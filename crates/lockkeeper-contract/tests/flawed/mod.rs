//! A store in memory that is sound, or has one flaw that real ones have had.

mod numbers;
mod table;

use async_trait::async_trait;
use lockkeeper::Result;
use lockkeeper::backend::{
    Alarm, Backend, Capability, Claim, FencingToken, Grant, Inspector, Lease, LockView, LossReason,
    Moment, Name, Patience, Reach, Release, Sequencer, Standing,
};
use numbers::Numbers;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use table::{Step, Table};
use tokio::sync::Notify;

/// What is wrong with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Nothing.
    Sound,
    /// Validity counts from when the answer came, and one that need not wait is slow.
    ValidityFromReply,
    /// A release frees the name without asking who holds it.
    BlindRelease,
    /// A waiter that was woken believes that it is its turn.
    NoSecondLook,
    /// A renewal brings back what has expired.
    LateRenewal,
    /// One who goes away keeps its place in the queue.
    PlaceLeaks,
    /// The tokens of a name start anew when it was free.
    TokensStartAnew,
    /// One more permit is issued than there are.
    OneTooMany,
    /// When callers disagree on the number of permits, the last one's counts.
    LastNumberCounts,
    /// The expiry is set by a second request, which never comes.
    NeverExpires,
    /// The store's time runs fast.
    ExpiresEarly,
    /// A withdrawal does nothing.
    WithdrawsNothing,
    /// One who does not wait gets in before those who do.
    TriesOvertake,
    /// Readers get in before a writer that waits.
    ReadersOvertake,
    /// A hold is broken whatever its token.
    BreaksAny,
    /// A broken holder is told only that its claim is gone.
    BreaksSilently,
    /// Who is broken before it is watched is not told.
    AlarmsTooLate,
    /// Names are compared without regard to case.
    FoldsCase,
    /// A release frees the name at once, whatever `min_hold` says.
    ForgetsMinHold,
    /// An owner who enters again gets a token of its own.
    NewTokenOnReentry,
    /// The first release of an owner frees the name.
    OneReleaseFreesAll,
    /// A release of what is gone is a release.
    ReleasesAnything,
    /// A count is read, and written a moment later.
    CountsInTwoSteps,
    /// What a lost answer reserved is reserved again: the count is written when the next comes.
    CountsLate,
    /// The first number is whatever the count is at, also below the floor.
    ForgetsFloor,
    /// What passes the ceiling is counted, and only then refused.
    CountsBeyond,
    /// A sequence that is to be there is begun.
    BeginsAnyway,
    /// Behind the last number comes the first.
    CountsInCircles,
    /// A number passes through a float.
    CountsInFloats,
    /// A record is compared, and written a moment later.
    WritesInTwoSteps,
    /// Records are compared without regard to blanks behind them.
    ForgivesBlanks,
    /// A record is written whatever it says.
    WritesBlindly,
    /// Listing takes no notice of the prefix.
    ListsAll,
    /// What a record says is cut off.
    CutsRecords,
    /// The clock goes back.
    ClockGoesBack,
    /// An auto-increment column that two can read the same of.
    IncrementsTwice,
    /// The sequence of a name is a lock of that name.
    ListsNumbers,
}

#[derive(Debug)]
pub(crate) struct Flawed {
    flaw: Flaw,
    table: Arc<Mutex<Table>>,
    changed: Arc<Notify>,
    numbers: Numbers,
}

impl Flawed {
    pub(crate) fn new(flaw: Flaw) -> Self {
        let table = Arc::new(Mutex::new(Table::new(flaw)));
        Self { flaw, table, changed: Arc::default(), numbers: Numbers::new(flaw) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn grant(&self, claim: &Claim, token: FencingToken, sent: Moment) -> Option<Grant> {
        let (table, changed) = (self.table.clone(), self.changed.clone());
        let lease = FlawedLease { flaw: self.flaw, table, changed, claim: claim.clone() };
        let valid_for = claim.ttl;
        Some(Grant::new(Box::new(lease), Some(token), sent, valid_for))
    }
}

#[async_trait]
impl Backend for Flawed {
    fn capability(&self) -> Capability {
        let mut capability = Capability::least(Reach::Process);
        capability.shared = true;
        capability.permits = true;
        capability.fair = true;
        capability.fencing = true;
        capability.inspects = true;
        capability.reentrant = true;
        capability.min_hold = true;
        capability.notified = true;
        capability.sequences = true;
        capability.auto_increment = true;
        capability
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        let (mut waited, mut woken) = (false, false);
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let mut sent = Moment::now();
            let believes = woken && self.flaw == Flaw::NoSecondLook;
            let step = self.table().step(claim, !patience.is_over(), believes)?;
            let next_expiry = match step {
                Step::Granted(token) => {
                    self.changed.notify_waiters();
                    if self.flaw == Flaw::ValidityFromReply {
                        let slow = Duration::from_millis(if waited { 0 } else { 150 });
                        tokio::time::sleep(slow).await;
                        sent = Moment::now();
                    }
                    return Ok(self.grant(claim, token, sent));
                }
                Step::Busy => return Ok(self.leave(claim)),
                Step::Queued(place, next_expiry) => {
                    patience.queued(place);
                    waited = true;
                    next_expiry
                }
            };
            tokio::select! {
                () = changed => woken = true,
                () = tokio::time::sleep(next_expiry.remaining()) => {}
                () = patience.over() => return Ok(self.leave(claim)),
            }
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        if self.flaw != Flaw::WithdrawsNothing {
            self.leave(claim);
            self.table().release(claim, Duration::ZERO);
            self.changed.notify_waiters();
        }
        Ok(())
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }

    fn sequencer(&self) -> Option<&dyn Sequencer> {
        Some(&self.numbers)
    }
}

impl Flawed {
    fn leave(&self, claim: &Claim) -> Option<Grant> {
        if self.flaw != Flaw::PlaceLeaks {
            self.table().leave(claim);
            self.changed.notify_waiters();
        }
        None
    }
}

impl fmt::Display for Flawed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flawed({:?})", self.flaw)
    }
}

#[derive(Debug)]
struct FlawedLease {
    flaw: Flaw,
    table: Arc<Mutex<Table>>,
    changed: Arc<Notify>,
    claim: Claim,
}

impl FlawedLease {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Lease for FlawedLease {
    async fn renew(&mut self) -> Result<Standing> {
        Ok(match self.table().renew(&self.claim) {
            true => Standing::Held,
            false => Standing::Lost(LossReason::Gone),
        })
    }

    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        let forgets = self.flaw == Flaw::ForgetsMinHold;
        let stay = if forgets { Duration::ZERO } else { how.stay() };
        let released = self.table().release(&self.claim, stay);
        self.changed.notify_waiters();
        match released || self.flaw == Flaw::ReleasesAnything {
            true => Ok(()),
            false => Err(LossReason::Gone.to_error()),
        }
    }

    fn watch(&mut self, alarm: Alarm) {
        let gone = self.table().watch(&self.claim, alarm);
        // To be told at once that the claim is gone would make up for counting from the reply.
        let tells = !matches!(self.flaw, Flaw::AlarmsTooLate | Flaw::ValidityFromReply);
        if let Some(alarm) = gone.filter(|_| tells) {
            alarm.ring(LossReason::Gone);
        }
    }
}

#[async_trait]
impl Inspector for Flawed {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        let mut views = self.table().views(|name| name.starts_with(prefix));
        if self.flaw == Flaw::ListsNumbers {
            let counted = self.numbers.counted().into_iter().map(LockView::new);
            views.extend(counted.filter(|view| view.name.as_str().starts_with(prefix)));
        }
        Ok(views)
    }

    async fn show(&self, name: &Name) -> Result<LockView> {
        let key = self.table().key(name);
        let mut views = self.table().views(|other| other == key.as_str());
        let free = LockView::new(name.clone());
        Ok(views.pop().unwrap_or(free))
    }

    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool> {
        let broken = self.table().take_out(name, token);
        for alarm in broken.iter().flatten() {
            alarm.ring(match self.flaw {
                Flaw::BreaksSilently => LossReason::Gone,
                _ => LossReason::Broken { reason: reason.to_owned() },
            });
        }
        self.changed.notify_waiters();
        Ok(!broken.is_empty())
    }
}
