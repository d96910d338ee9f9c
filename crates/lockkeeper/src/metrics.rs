//! What a keeper does, as counters, gauges and histograms of the facade crate [`metrics`](https://docs.rs/metrics).
//!
//! Every keeper measures, without further ado, into the recorder that the program has installed; with none
//! installed that costs next to nothing. [`Keeper::with_metrics`](crate::Keeper::with_metrics) says more:
//! by which prefixes locks are told apart, what the store is called, or that this keeper measures nothing.
//!
//! The recorder of the facade is global: that is how the facade works, and the program chooses it. A keeper
//! asks for it when it is first used, and keeps to it. So install the recorder before the first lock is
//! asked for; or give a keeper [one of its own](Metrics::recorder), which is global to nothing.
//!
//! | metric | type | labels beside `store` and `recipe` | what it is |
//! |---|---|---|---|
//! | `lockkeeper_acquires_total` | counter | `mode`, `prefix`, `outcome` | locks asked for, by what came of it: `granted`, `reentered`, `busy`, `timed_out`, `cancelled`, `failed` |
//! | `lockkeeper_wait_seconds` | histogram | `mode`, `prefix`, `outcome` | how long was waited: until it was `granted`, or in vain, `not_granted`; not for those that would not wait |
//! | `lockkeeper_hold_seconds` | histogram | `mode`, `prefix`, `end` | how long a lock was held, until it was `released`, `lost`, or `left` to its ticket or its ttl |
//! | `lockkeeper_held` | gauge | `mode`, `prefix` | locks held at this moment |
//! | `lockkeeper_waiting` | gauge | `mode`, `prefix` | callers that wait at this moment |
//! | `lockkeeper_renewals_total` | counter | `mode`, `prefix`, `outcome` | `renewed`, `unanswered`, `lost`, `too_late` |
//! | `lockkeeper_renewal_margin_seconds` | histogram | `mode`, `prefix` | for how much longer the claim was valid when its renewal was answered |
//! | `lockkeeper_losses_total` | counter | `mode`, `prefix`, `reason` | `expired`, `gone`, `broken`, `no_majority`, `held_too_long` |
//! | `lockkeeper_store_requests_total` | counter | `operation`, `outcome` | what was asked of the store, and whether it answered: `ok`, `unavailable`, `error` |
//! | `lockkeeper_reconnects_total` | counter | | the store answered again, after it had not |
//!
//! No label has the name of a lock in it, whatever its prefix: names are without number. Those of `prefix`
//! are what [`Metrics::prefix`] was given, and `other`.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
//! use lockkeeper::metrics::Metrics;
//!
//! let keeper = lockkeeper::connect("memory:").await?;
//! let keeper = keeper.with_metrics(Metrics::new().prefix("orders/").prefix("cron/"))?;
//! keeper.lock("orders/42").acquire().await?.release().await?; // prefix="orders/"
//! # Ok(()) }
//! ```

pub use ::metrics::Recorder;

use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use std::fmt;
use std::sync::Arc;

/// So many prefixes can be given: each makes series of its own.
pub const MOST_PREFIXES: usize = 50;

/// The value of the label `prefix` for all other names.
pub const OTHER: &str = "other";

/// The longest name of a store.
const LONGEST_STORE: usize = 100;

/// How a keeper measures; see the [module](self).
#[derive(Clone, Default)]
pub struct Metrics {
    pub(crate) store: Option<String>,
    pub(crate) prefixes: Vec<String>,
    pub(crate) recorder: Option<Arc<dyn Recorder + Send + Sync>>,
    pub(crate) is_off: bool,
}

impl Metrics {
    /// Into the recorder of the facade, with the scheme of the store as its name, and all locks as one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Measures nothing.
    pub fn off() -> Self {
        Self { is_off: true, ..Self::default() }
    }

    /// Tells locks apart whose names start with `prefix`: they have it as their label `prefix`. Of several
    /// that fit, the longest counts. At most [`MOST_PREFIXES`] can be given.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefixes.push(prefix.into());
        self
    }

    /// The value of the label `store`, where the scheme of its URL does not say enough: two servers of one
    /// kind.
    #[must_use]
    pub fn store(mut self, store: impl Into<String>) -> Self {
        self.store = Some(store.into());
        self
    }

    /// Into this recorder, instead of the one that is installed.
    #[must_use]
    pub fn recorder(mut self, recorder: Arc<dyn Recorder + Send + Sync>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// # Errors
    /// [`ErrorKind::Config`] for prefixes that no name has, too many of them, or a name of a store that
    /// is empty or long.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |why: String| Err(Error::new(ErrorKind::Config, why));
        if self.prefixes.len() > MOST_PREFIXES {
            let given = self.prefixes.len();
            return refuse(format!("metrics have at most {MOST_PREFIXES} prefixes, not {given}"));
        }
        for (index, prefix) in self.prefixes.iter().enumerate() {
            if let Err(error) = Name::new(prefix) {
                return refuse(format!("no lock has the prefix {prefix:?}: {error}"));
            }
            if prefix == OTHER {
                return refuse(format!(
                    "{OTHER:?} is the label of locks with no prefix of those given: use \"other/\", or \
                     another prefix"
                ));
            }
            if self.prefixes[..index].contains(prefix) {
                return refuse(format!("the prefix {prefix:?} was given twice"));
            }
        }
        match &self.store {
            Some(store) if store.is_empty() || store.len() > LONGEST_STORE => {
                refuse(format!("the name of a store in metrics has 1 to {LONGEST_STORE} bytes"))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("store", &self.store)
            .field("prefixes", &self.prefixes)
            .field("is_off", &self.is_off)
            .finish_non_exhaustive()
    }
}

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How values are spread.
    Histogram,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        })
    }
}

/// One metric that keepers have. Names and labels are an interface: they are added to, never changed.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its labels, in order.
    pub labels: &'static [&'static str],
    /// What it tells, in a line.
    pub about: &'static str,
}

/// Every metric that keepers have.
pub const METRICS: &[Metric] =
    &[ACQUIRES, WAIT, HOLD, HELD, WAITING, RENEWALS, MARGIN, LOSSES, REQUESTS, RECONNECTS];

const BY_OUTCOME: &[&str] = &["store", "recipe", "mode", "prefix", "outcome"];
const BY_PREFIX: &[&str] = &["store", "recipe", "mode", "prefix"];

pub(crate) const ACQUIRES: Metric = Metric {
    name: "lockkeeper_acquires_total",
    kind: Kind::Counter,
    labels: BY_OUTCOME,
    about: "Locks that were asked for, by what came of it.",
};
pub(crate) const WAIT: Metric = Metric {
    name: "lockkeeper_wait_seconds",
    kind: Kind::Histogram,
    labels: BY_OUTCOME,
    about: "How long was waited for a lock.",
};
pub(crate) const HOLD: Metric = Metric {
    name: "lockkeeper_hold_seconds",
    kind: Kind::Histogram,
    labels: &["store", "recipe", "mode", "prefix", "end"],
    about: "How long a lock was held, by how that ended.",
};
pub(crate) const HELD: Metric = Metric {
    name: "lockkeeper_held",
    kind: Kind::Gauge,
    labels: BY_PREFIX,
    about: "Locks that are held.",
};
pub(crate) const WAITING: Metric = Metric {
    name: "lockkeeper_waiting",
    kind: Kind::Gauge,
    labels: BY_PREFIX,
    about: "Callers that wait for a lock.",
};
pub(crate) const RENEWALS: Metric = Metric {
    name: "lockkeeper_renewals_total",
    kind: Kind::Counter,
    labels: BY_OUTCOME,
    about: "Renewals of locks that are held, by their outcome.",
};
pub(crate) const MARGIN: Metric = Metric {
    name: "lockkeeper_renewal_margin_seconds",
    kind: Kind::Histogram,
    labels: BY_PREFIX,
    about: "For how much longer a lock was valid when its renewal was answered.",
};
pub(crate) const LOSSES: Metric = Metric {
    name: "lockkeeper_losses_total",
    kind: Kind::Counter,
    labels: &["store", "recipe", "mode", "prefix", "reason"],
    about: "Locks that were lost while they were held.",
};
pub(crate) const REQUESTS: Metric = Metric {
    name: "lockkeeper_store_requests_total",
    kind: Kind::Counter,
    labels: &["store", "recipe", "operation", "outcome"],
    about: "What was asked of the store, and whether it answered.",
};
pub(crate) const RECONNECTS: Metric = Metric {
    name: "lockkeeper_reconnects_total",
    kind: Kind::Counter,
    labels: &["store", "recipe"],
    about: "The store answered again, after it had not.",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let many = (0..=MOST_PREFIXES).fold(Metrics::new(), |all, n| all.prefix(format!("{n}/")));
        for (metrics, why) in [
            (Metrics::new().prefix(""), "empty"),
            (Metrics::new().prefix("two\nlines"), "control character"),
            (Metrics::new().prefix("x".repeat(201)), "at most 200 bytes"),
            (Metrics::new().prefix("other"), "no prefix of those given"),
            (Metrics::new().prefix("a/").prefix("b/").prefix("a/"), "twice"),
            (Metrics::new().store(""), "1 to 100 bytes"),
            (many, "at most 50 prefixes, not 51"),
        ] {
            let error = metrics.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(why), "{error}");
        }
        assert!(Metrics::new().prefix("a/").prefix("a/b").store("prod").check().is_ok());
    }
}
