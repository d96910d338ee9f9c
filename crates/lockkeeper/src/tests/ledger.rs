//! A recorder that can be asked what it has.

use ::metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Every value that was given for one name with its labels.
#[derive(Debug, Default)]
struct Entry(Mutex<Vec<f64>>);

#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: Mutex<BTreeMap<String, Arc<Entry>>>,
    described: Mutex<Vec<String>>,
}

impl Ledger {
    fn entry(&self, key: &Key) -> Arc<Entry> {
        let labels: Vec<_> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let line = format!("{}{{{}}}", key.name(), labels.join(","));
        self.entries.lock().unwrap().entry(line).or_default().clone()
    }

    /// All series of which `parts` are a part, and that have a value.
    fn values(&self, parts: &[&str]) -> Vec<f64> {
        let entries = self.entries.lock().unwrap();
        let fits = |line: &str| parts.iter().all(|part| line.contains(part));
        let fitting = entries.iter().filter(|(line, _)| fits(line));
        fitting.flat_map(|(_, entry)| entry.0.lock().unwrap().clone()).collect()
    }

    /// The counter or the gauge.
    pub(super) fn sum(&self, parts: &[&str]) -> f64 {
        self.values(parts).into_iter().sum()
    }

    /// What a histogram was given.
    pub(super) fn samples(&self, parts: &[&str]) -> Vec<f64> {
        self.values(parts)
    }

    /// The names that have a value, each once, in order.
    pub(super) fn names(&self) -> Vec<String> {
        let entries = self.entries.lock().unwrap();
        let used = entries.iter().filter(|(_, entry)| !entry.0.lock().unwrap().is_empty());
        let mut names: Vec<_> =
            used.map(|(line, _)| line.split('{').next().unwrap().to_owned()).collect();
        names.dedup();
        names
    }

    /// All series, used or not.
    pub(super) fn lines(&self) -> Vec<String> {
        self.entries.lock().unwrap().keys().cloned().collect()
    }

    pub(super) fn described(&self) -> Vec<String> {
        self.described.lock().unwrap().clone()
    }
}

#[allow(clippy::cast_precision_loss, reason = "small numbers")]
impl CounterFn for Entry {
    fn increment(&self, value: u64) {
        self.0.lock().unwrap().push(value as f64);
    }

    fn absolute(&self, _: u64) {
        panic!("a counter is counted up");
    }
}

impl GaugeFn for Entry {
    fn increment(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }

    fn decrement(&self, value: f64) {
        self.0.lock().unwrap().push(-value);
    }

    fn set(&self, _: f64) {
        panic!("a gauge is shared by keepers, and not set");
    }
}

impl HistogramFn for Entry {
    fn record(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }
}

impl Recorder for Ledger {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().push(key.as_str().to_owned());
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().push(key.as_str().to_owned());
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().push(key.as_str().to_owned());
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.entry(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.entry(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.entry(key))
    }
}
