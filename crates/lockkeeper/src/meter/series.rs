//! The handles of metrics, made once for each keeper: with the first lock of a prefix and a mode, those of all
//! such locks.

use super::{End, Operation};
use crate::backend::Backend;
use crate::claim::{Claim, Mode};
use crate::loss::LossReason;
use crate::metrics::{self as names, Metric, Metrics, OTHER, Recorder};
use crate::recipes::recipes;
use ::metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Unit};
use std::sync::{Arc, OnceLock};

/// What came of asking for a lock.
#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome {
    Granted,
    Reentered,
    Busy,
    TimedOut,
    Cancelled,
    Failed,
}

/// What came of a renewal.
#[derive(Debug, Clone, Copy)]
pub(super) enum Renewal {
    Renewed,
    Unanswered,
    Lost,
    TooLate,
}

/// What came of a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    Ok,
    Unavailable,
    Error,
}

// The values of labels, in the order of what they stand for.
const MODES: [&str; 3] = ["exclusive", "shared", "permit"];
const OUTCOMES: [&str; 6] = ["granted", "reentered", "busy", "timed_out", "cancelled", "failed"];
const WAITS: [&str; 2] = ["granted", "not_granted"];
const ENDS: [&str; 3] = ["released", "lost", "left"];
const RENEWALS: [&str; 4] = ["renewed", "unanswered", "lost", "too_late"];
const REASONS: [&str; 5] = ["expired", "gone", "broken", "no_majority", "held_too_long"];
const ANSWERS: [&str; 3] = ["ok", "unavailable", "error"];

/// Those of a keeper.
pub(super) struct All {
    source: Source,
    /// The longest first, so that the first that fits is the one that counts.
    prefixes: Vec<String>,
    /// For each prefix and for all other names, those of each mode.
    series: Box<[OnceLock<Arc<Series>>]>,
    requests: [OnceLock<[Counter; ANSWERS.len()]>; Operation::ALL.len()],
    pub(super) reconnects: Counter,
}

/// Those of all locks of one mode and prefix. Made all at once: a counter that begins with its first event
/// is not seen to grow by it, and a first loss would raise no alarm.
pub(super) struct Series {
    pub(super) held: Gauge,
    pub(super) waiting: Gauge,
    pub(super) margin: Histogram,
    acquires: [Counter; OUTCOMES.len()],
    waits: [Histogram; WAITS.len()],
    holds: [Histogram; ENDS.len()],
    renewals: [Counter; RENEWALS.len()],
    losses: [Counter; REASONS.len()],
}

impl All {
    /// `None` where nothing is measured.
    pub(super) fn open(metrics: Metrics, backend: &dyn Backend) -> Option<Self> {
        let Metrics { store, mut prefixes, recorder, is_off } = metrics;
        if is_off {
            return None;
        }
        prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.len()));
        let store = store.unwrap_or_else(|| scheme_of(&backend.to_string()).to_owned());
        let labels = [Label::new("store", store), Label::new("recipe", backend.recipe())];
        let source = Source { recorder, labels };
        source.describe();
        let series = (0..(prefixes.len() + 1) * MODES.len()).map(|_| OnceLock::new()).collect();
        let reconnects = source.counter(&names::RECONNECTS, &[]);
        Some(Self { source, prefixes, series, requests: Default::default(), reconnects })
    }

    pub(super) fn of(&self, claim: &Claim) -> &Arc<Series> {
        let name = claim.name.as_str();
        let place = self.prefixes.iter().position(|prefix| name.starts_with(prefix.as_str()));
        let place = place.unwrap_or(self.prefixes.len());
        let mode = match claim.mode {
            Mode::Exclusive => 0,
            Mode::Shared => 1,
            Mode::Permit { .. } => 2,
        };
        self.series[place * MODES.len() + mode].get_or_init(|| {
            let prefix = self.prefixes.get(place).cloned().unwrap_or_else(|| OTHER.to_owned());
            let labels = [Label::new("mode", MODES[mode]), Label::new("prefix", prefix)];
            Arc::new(Series::new(&self.source, &labels))
        })
    }

    pub(super) fn request(&self, operation: Operation, answer: Answer) -> &Counter {
        let of_operation = self.requests[operation as usize].get_or_init(|| {
            let operation = [Label::new("operation", operation.word())];
            ANSWERS.map(|word| {
                self.source.counter(&names::REQUESTS, &with(&operation, "outcome", word))
            })
        });
        &of_operation[answer as usize]
    }
}

impl Series {
    fn new(source: &Source, labels: &[Label]) -> Self {
        let counters = |metric, label, word| source.counter(metric, &with(labels, label, word));
        let histograms = |metric, label, word| source.histogram(metric, &with(labels, label, word));
        Self {
            held: source.gauge(&names::HELD, labels),
            waiting: source.gauge(&names::WAITING, labels),
            margin: source.histogram(&names::MARGIN, labels),
            acquires: OUTCOMES.map(|word| counters(&names::ACQUIRES, "outcome", word)),
            waits: WAITS.map(|word| histograms(&names::WAIT, "outcome", word)),
            holds: ENDS.map(|word| histograms(&names::HOLD, "end", word)),
            renewals: RENEWALS.map(|word| counters(&names::RENEWALS, "outcome", word)),
            losses: REASONS.map(|word| counters(&names::LOSSES, "reason", word)),
        }
    }

    pub(super) fn acquires(&self, outcome: Outcome) -> &Counter {
        &self.acquires[outcome as usize]
    }

    pub(super) fn wait(&self, was_granted: bool) -> &Histogram {
        &self.waits[usize::from(!was_granted)]
    }

    pub(super) fn hold(&self, end: End) -> &Histogram {
        &self.holds[end as usize]
    }

    pub(super) fn renewals(&self, renewal: Renewal) -> &Counter {
        &self.renewals[renewal as usize]
    }

    pub(super) fn losses(&self, reason: &LossReason) -> &Counter {
        &self.losses[match reason {
            LossReason::Expired => 0,
            LossReason::Gone => 1,
            LossReason::Broken { .. } => 2,
            LossReason::NoMajority { .. } => 3,
            LossReason::HeldTooLong => 4,
        }]
    }
}

fn with(labels: &[Label], key: &'static str, word: &'static str) -> Vec<Label> {
    labels.iter().cloned().chain([Label::new(key, word)]).collect()
}

/// Where handles come from, and the labels that all of a keeper's have.
struct Source {
    recorder: Option<Arc<dyn Recorder + Send + Sync>>,
    labels: [Label; 2],
}

const METADATA: Metadata<'static> = Metadata::new("lockkeeper", Level::INFO, Some(module_path!()));

impl Source {
    fn counter(&self, metric: &Metric, labels: &[Label]) -> Counter {
        self.with(|recorder| recorder.register_counter(&self.key(metric, labels), &METADATA))
    }

    fn gauge(&self, metric: &Metric, labels: &[Label]) -> Gauge {
        self.with(|recorder| recorder.register_gauge(&self.key(metric, labels), &METADATA))
    }

    fn histogram(&self, metric: &Metric, labels: &[Label]) -> Histogram {
        self.with(|recorder| recorder.register_histogram(&self.key(metric, labels), &METADATA))
    }

    fn key(&self, metric: &Metric, labels: &[Label]) -> Key {
        let labels: Vec<Label> = self.labels.iter().chain(labels).cloned().collect();
        debug_assert!(
            labels.iter().map(Label::key).eq(metric.labels.iter().copied()),
            "{metric:?}"
        );
        Key::from_parts(metric.name, labels)
    }

    fn describe(&self) {
        self.with(|recorder| {
            for Metric { name, kind, about, .. } in names::METRICS {
                let (name, about) = ((*name).into(), (*about).into());
                match kind {
                    names::Kind::Counter => recorder.describe_counter(name, None, about),
                    names::Kind::Gauge => recorder.describe_gauge(name, None, about),
                    names::Kind::Histogram => {
                        recorder.describe_histogram(name, Some(Unit::Seconds), about);
                    }
                }
            }
        });
    }

    fn with<T>(&self, ask: impl FnOnce(&dyn Recorder) -> T) -> T {
        match &self.recorder {
            Some(recorder) => ask(&**recorder),
            None => ::metrics::with_recorder(ask),
        }
    }
}

/// The scheme of a store's URL; of a store of the user's own, which may show itself as anything, if it is
/// one that is known.
fn scheme_of(shown: &str) -> &str {
    let scheme = shown.split(':').next().unwrap_or_default();
    let known = recipes().iter().any(|recipe| recipe.scheme == spelled(scheme));
    if known { spelled(scheme) } else { OTHER }
}

/// The one spelling of a scheme that has several.
fn spelled(scheme: &str) -> &str {
    match scheme {
        "mysql" => "mariadb",
        "postgresql" => "postgres",
        "rediss" | "redis+sentinel" | "redis+cluster" => "redis",
        scheme => scheme,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_called_by_its_scheme_or_other() {
        for (shown, scheme) in [
            ("memory:", "memory"),
            ("rediss://me:***@h1:6380/2", "redis"),
            ("mysql://h/d", "mariadb"),
            ("shop:42", OTHER),
            ("", OTHER),
        ] {
            assert_eq!(scheme_of(shown), scheme, "{shown}");
        }
    }
}
