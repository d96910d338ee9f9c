//! What a keeper does, measured: the only place that does so. `meter_off.rs` stands for it where the
//! feature is off.
//!
//! Gauges are counted up and down, never set: keepers with the same labels share them. Each step up is a
//! value that steps down when it is dropped, wherever that happens.

mod series;

pub(crate) use crate::operation::Operation;

use crate::backend::{Backend, Standing};
use crate::claim::Claim;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::event::EventKind;
use crate::guard::Guard;
use crate::metrics::Metrics;
use series::{Answer, Outcome, Renewal, Series};
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Measures what one keeper does. Clones share it.
#[derive(Clone)]
pub(crate) struct Meter(Arc<Inner>);

struct Inner {
    backend: Arc<dyn Backend>,
    /// Settled with the first thing that is measured; `None` where nothing is.
    all: OnceLock<Option<series::All>>,
}

/// How a hold ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    Released,
    Lost,
    /// To its ticket, or to its ttl.
    Left,
}

impl Meter {
    pub(crate) fn new(backend: &Arc<dyn Backend>) -> Self {
        Self(Arc::new(Inner { backend: backend.clone(), all: OnceLock::new() }))
    }

    /// Measures as `metrics` says.
    ///
    /// # Errors
    /// `Config` when that makes no sense, or comes too late.
    pub(crate) fn set(&self, metrics: Metrics) -> Result<()> {
        metrics.check()?;
        let mut metrics = Some(metrics);
        self.0.all.get_or_init(|| series::All::open(metrics.take()?, &*self.0.backend));
        match metrics {
            None => Ok(()),
            Some(_) => Err(Error::new(
                ErrorKind::Config,
                "this keeper measures already: say how right after it was opened, and once",
            )),
        }
    }

    fn all(&self) -> Option<&series::All> {
        let open = || series::All::open(Metrics::new(), &*self.0.backend);
        self.0.all.get_or_init(open).as_ref()
    }

    fn series(&self, claim: &Claim) -> Option<&Arc<Series>> {
        Some(self.all()?.of(claim))
    }

    /// A caller asks for a lock since `begun`, and would wait for it or not.
    pub(crate) fn asks(&self, claim: &Claim, begun: Moment, is_patient: bool) -> Asks<'_> {
        Asks { series: self.series(claim), begun, is_patient, enters_again: false }
    }

    /// A claim is held for as long as this lives.
    pub(crate) fn holds(&self, claim: &Claim) -> Option<Held> {
        let series = self.series(claim)?.clone();
        series.held.increment(1);
        Some(Held(series))
    }

    /// The store was asked something, and this is what it said.
    pub(crate) fn request<T>(&self, operation: Operation, answer: &Result<T>) {
        let Some(all) = self.all() else { return };
        let outcome = match answer {
            Err(error) if error.is_outage() => Answer::Unavailable,
            // That a claim is gone is an answer like any other.
            Err(error) if error.kind() != ErrorKind::Lost => Answer::Error,
            _ => Answer::Ok,
        };
        all.request(operation, outcome).increment(1);
    }

    /// A renewal was answered, or not. The claim was valid for `left` then; `None` when it was over.
    pub(crate) fn renewal(&self, claim: &Claim, answer: &Result<Standing>, left: Option<Duration>) {
        let Some(series) = self.series(claim) else { return };
        let outcome = match (answer, left) {
            (Err(_), _) => Renewal::Unanswered,
            (Ok(Standing::Lost(_)), _) => Renewal::Lost,
            (Ok(_), None) => Renewal::TooLate,
            (Ok(_), Some(left)) => {
                series.margin.record(left);
                Renewal::Renewed
            }
        };
        series.renewals(outcome).increment(1);
    }

    /// What is told of a claim.
    pub(crate) fn tells(&self, claim: &Claim, kind: &EventKind) {
        match kind {
            EventKind::Lost(reason) => {
                self.series(claim).iter().for_each(|series| series.losses(reason).increment(1));
            }
            EventKind::Reconnected { .. } => {
                self.all().iter().for_each(|all| all.reconnects.increment(1));
            }
            _ => {}
        }
    }
}

/// A caller that asks for a lock. Dropped before it is told what came of it, the caller left.
pub(crate) struct Asks<'a> {
    /// `None` where nothing is measured, or it has been.
    series: Option<&'a Arc<Series>>,
    begun: Moment,
    is_patient: bool,
    enters_again: bool,
}

impl Asks<'_> {
    /// Its owner has the lock already.
    pub(crate) fn enters_again(&mut self) {
        self.enters_again = true;
    }

    pub(crate) fn finish(self, outcome: &Result<Option<Guard>>) {
        match outcome {
            Ok(Some(guard)) => self.granted(guard),
            Ok(None) if self.is_patient => self.in_vain(Outcome::TimedOut),
            Ok(None) => self.busy(),
            Err(_) => self.failed(),
        }
    }

    pub(crate) fn granted(mut self, guard: &Guard) {
        let Some(series) = self.series.take() else { return };
        // Also one that was found by its id.
        if self.enters_again || guard.held_since() < self.begun {
            return series.acquires(Outcome::Reentered).increment(1);
        }
        series.acquires(Outcome::Granted).increment(1);
        if self.is_patient {
            series.wait(true).record(guard.held_since().since(self.begun));
        }
    }

    pub(crate) fn busy(mut self) {
        if let Some(series) = self.series.take() {
            series.acquires(Outcome::Busy).increment(1);
        }
    }

    pub(crate) fn failed(self) {
        self.in_vain(Outcome::Failed);
    }

    /// It is asked for in another way, and measured there.
    pub(crate) fn forget(mut self) {
        self.series = None;
    }

    fn in_vain(mut self, outcome: Outcome) {
        self.count_in_vain(outcome);
    }

    fn count_in_vain(&mut self, outcome: Outcome) {
        let Some(series) = self.series.take() else { return };
        series.acquires(outcome).increment(1);
        if self.is_patient {
            series.wait(false).record(Moment::now().since(self.begun));
        }
    }
}

impl Drop for Asks<'_> {
    fn drop(&mut self) {
        self.count_in_vain(Outcome::Cancelled);
    }
}

/// A claim that is held.
pub(crate) struct Held(Arc<Series>);

impl Held {
    /// The hold that began at `since` is over.
    pub(crate) fn end(self, how: End, since: Moment) {
        self.0.hold(how).record(Moment::now().since(since));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.held.decrement(1);
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held")
    }
}

/// Whether a caller is counted among those that wait. What goes on in the background after the caller
/// left changes nothing any more.
#[derive(Debug, Default)]
pub(crate) struct Waiting(AtomicU8);

const COUNTED: u8 = 1;
const OVER: u8 = 2;

impl Waiting {
    /// The claim has to wait: counted once.
    pub(crate) fn begin(&self, meter: &Meter, claim: &Claim) {
        let first = self.0.compare_exchange(0, COUNTED, Ordering::AcqRel, Ordering::Acquire);
        if let (Ok(_), Some(series)) = (first, meter.series(claim)) {
            series.waiting.increment(1);
        }
    }

    /// The caller got what it waited for, or left.
    pub(crate) fn end(&self, meter: &Meter, claim: &Claim) {
        if self.0.swap(OVER, Ordering::AcqRel) == COUNTED
            && let Some(series) = meter.series(claim)
        {
            series.waiting.decrement(1);
        }
    }
}
