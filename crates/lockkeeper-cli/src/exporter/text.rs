//! What was seen, as Prometheus reads it.

use super::look::{Group, Looked};
use super::prefixes::Prefixes;
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

/// What goes on from look to look.
#[derive(Debug, Default)]
pub(super) struct Totals {
    fine: u64,
    failed: u64,
    /// Of the last look that was a whole one.
    last: Option<(Duration, Duration)>,
}

impl Totals {
    pub(super) fn count(&mut self, is_fine: bool) {
        *(if is_fine { &mut self.fine } else { &mut self.failed }) += 1;
    }
}

/// The page; of `None`, a look that came to nothing.
pub(super) fn page(looked: Option<&Looked>, prefixes: &Prefixes, totals: &mut Totals) -> String {
    let mut page = Page(String::new());
    page.metric("lockkeeper_up", "gauge", "Whether the store answered at the last look.");
    page.line("lockkeeper_up", &[], if looked.is_some() { "1" } else { "0" });
    if let Some(looked) = looked {
        let since = looked.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        totals.last = Some((since, looked.took));
        page.locks(&looked.groups, prefixes);
        if let Some(round_trip) = looked.round_trip {
            let name = "lockkeeper_round_trip_seconds";
            page.metric(name, "gauge", "How long the store took to answer a short question.");
            page.line(name, &[], &seconds(round_trip));
        }
        let name = "lockkeeper_exporter_info";
        page.metric(name, "gauge", "What is looked at, and by what; always 1.");
        let labels = [("store", &*looked.store), ("version", env!("CARGO_PKG_VERSION"))];
        page.line(name, &labels, "1");
    }
    if let Some((at, took)) = totals.last {
        let name = "lockkeeper_last_look_timestamp_seconds";
        page.metric(name, "gauge", "When the store was last seen whole.");
        page.line(name, &[], &seconds(at));
        let name = "lockkeeper_look_seconds";
        page.metric(name, "gauge", "How long the last look at the whole store took.");
        page.line(name, &[], &seconds(took));
    }
    let name = "lockkeeper_looks_total";
    page.metric(name, "counter", "Looks at the store, by their outcome.");
    page.line(name, &[("outcome", "ok")], &totals.fine.to_string());
    page.line(name, &[("outcome", "failed")], &totals.failed.to_string());
    page.0
}

struct Page(String);

impl Page {
    fn locks(&mut self, groups: &[Group], prefixes: &Prefixes) {
        type Value = fn(&Group) -> String;
        let metrics: [(&str, &str, Value); 5] = [
            ("lockkeeper_store_locks", "Names that are held or waited for.", |group| {
                group.locks.to_string()
            }),
            ("lockkeeper_store_held", "Those who hold a lock.", |group| group.held.to_string()),
            ("lockkeeper_store_waiting", "Those who wait for a lock.", |group| {
                group.waiting.to_string()
            }),
            (
                "lockkeeper_store_oldest_hold_seconds",
                "For how long the oldest holder has held; 0 if there is none.",
                |group| seconds(group.oldest_hold),
            ),
            (
                "lockkeeper_store_oldest_wait_seconds",
                "For how long the oldest waiter has waited; 0 if there is none.",
                |group| seconds(group.oldest_wait),
            ),
        ];
        for (name, help, value) in metrics {
            self.metric(name, "gauge", help);
            for (group, label) in groups.iter().zip(prefixes.labels()) {
                self.line(name, &[("prefix", label)], &value(group));
            }
        }
    }

    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        // To a string nothing fails.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: &str) {
        let labels: Vec<_> =
            labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
        let labels = match labels.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", labels.join(",")),
        };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn seconds(time: Duration) -> String {
    format!("{:.6}", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked(prefixes: &Prefixes) -> Looked {
        let group = Group {
            locks: 2,
            held: 3,
            waiting: 4,
            oldest_hold: Duration::from_millis(2500),
            oldest_wait: Duration::from_secs(1),
        };
        Looked {
            store: "sqlite:a\"b\\c".to_owned(),
            round_trip: Some(Duration::from_micros(250)),
            at: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
            took: Duration::from_millis(3),
            groups: vec![group; prefixes.len()],
        }
    }

    #[test]
    fn a_look_is_told_in_full_and_one_in_vain_tells_no_old_numbers() {
        let prefixes = Prefixes::new(&["cron/".to_owned()]).unwrap();
        let mut totals = Totals::default();
        totals.count(true);
        let text = page(Some(&looked(&prefixes)), &prefixes, &mut totals);
        for line in [
            "lockkeeper_up 1",
            "lockkeeper_store_held{prefix=\"cron/\"} 3",
            "lockkeeper_store_waiting{prefix=\"other\"} 4",
            "lockkeeper_store_oldest_hold_seconds{prefix=\"cron/\"} 2.500000",
            "lockkeeper_round_trip_seconds 0.000250",
            "lockkeeper_last_look_timestamp_seconds 1700000000.000000",
            "lockkeeper_looks_total{outcome=\"ok\"} 1",
        ] {
            assert!(text.lines().any(|there| there == line), "{line}\n{text}");
        }
        assert!(text.contains("store=\"sqlite:a\\\"b\\\\c\""), "{text}");
        totals.count(false);
        let text = page(None, &prefixes, &mut totals);
        assert!(text.contains("lockkeeper_up 0\n"), "{text}");
        assert!(!text.contains("lockkeeper_store_"), "{text}");
        assert!(text.contains("lockkeeper_last_look_timestamp_seconds 1700000000"), "{text}");
        assert!(text.contains("lockkeeper_looks_total{outcome=\"failed\"} 1\n"), "{text}");
    }
}
