//! `doctor`: whether a store is fit for locks, check by check.

mod promises;
mod trial;

use crate::arguments::StoreArguments;
use crate::claim::LAST_WAIT;
use crate::exit::{self, Failure};
use crate::text::visible;
use crate::{json, output, table};
use clap::Args;
use lockkeeper::Keeper;
use lockkeeper::backend::{Finding, Verdict};
use serde::Serialize;
use std::time::{Duration, Instant};

/// How many round trips are measured.
const ROUND_TRIPS: usize = 20;

pub(crate) const EXIT_CODES: &str = "\
Checked are: connection, version, round trip, persistence, eviction, replication, the clock beside
that of this machine, what this user may do (a lock with a private name is taken, renewed, listed and
released), and what store and recipe promise.

Exit codes:
  0    no problem was found, though there may be warnings
  1    a problem was found
  64   wrong usage, or a store that lockkeeper refuses to use
  69   the store is unreachable or unusable
  77   the store refused us

Examples:
  lockkeeper doctor --store redis://127.0.0.1
  lockkeeper doctor --json | jq '.checks[] | select(.verdict == \"problem\")'";

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArguments,
}

pub(crate) async fn doctor(asked: &DoctorArguments) -> Result<u8, Failure> {
    let begun = Instant::now();
    // What keeps us from connecting is said and coded as by every other command.
    let keeper = crate::store::open(&asked.store.url()?).await?;
    let connected = begun.elapsed();
    let checks = examine(&keeper, connected).await;
    let shown = keeper.to_string();
    keeper.close(LAST_WAIT).await;
    let worst = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Fine);
    output::print(match asked.json {
        true => json::line(&Report::new(&shown, worst, &checks)),
        false => lines(&checks),
    })?;
    Ok(if worst == Verdict::Problem { exit::NOTHING } else { exit::FINE })
}

/// All checks, in the order in which they are printed.
async fn examine(keeper: &Keeper, connected: Duration) -> Vec<Check> {
    let mut checks = vec![Check::fine("connection", format!("{keeper} in {}", millis(connected)))];
    let measured = keeper.round_trips(ROUND_TRIPS).await;
    match keeper.checkup().await {
        Ok(findings) => checks.extend(findings.into_iter().map(Check::from)),
        Err(error) => checks.push(Check::problem(
            "version",
            format!("the store could not be asked: {error}"),
            "see that the store runs and lets this user ask",
        )),
    }
    let after_version =
        checks.iter().position(|check| check.name == "version").map_or(1, |at| at + 1);
    checks.insert(after_version, round_trip(measured));
    checks.push(trial::access(keeper).await);
    checks.push(promises::of(&keeper.capability()));
    checks
}

fn round_trip(measured: lockkeeper::Result<Vec<Duration>>) -> Check {
    let name = "round trip";
    match measured {
        Ok(mut took) if !took.is_empty() => {
            took.sort();
            let (median, worst) = (millis(took[took.len() / 2]), millis(took[took.len() - 1]));
            Check::fine(name, format!("median {median}, worst {worst}, of {}", took.len()))
        }
        Ok(_) => Check::fine(name, "none: nobody is asked"),
        Err(error) => Check::warning(
            name,
            format!("could not be measured: {error}"),
            "see that this user may run the least request that there is",
        ),
    }
}

/// With as many digits as say something.
fn millis(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1000.0;
    match millis {
        ..1.0 => format!("{millis:.3}ms"),
        1.0..100.0 => format!("{millis:.1}ms"),
        _ => format!("{millis:.0}ms"),
    }
}

/// One line.
#[derive(Debug)]
struct Check {
    name: String,
    verdict: Verdict,
    node: Option<String>,
    text: String,
    advice: String,
}

impl Check {
    fn new(name: &str, verdict: Verdict, text: impl Into<String>, advice: &str) -> Self {
        let (name, advice) = (name.to_owned(), advice.to_owned());
        Self { name, verdict, node: None, text: text.into(), advice }
    }

    fn fine(name: &str, text: impl Into<String>) -> Self {
        Self::new(name, Verdict::Fine, text, "")
    }

    fn warning(name: &str, text: impl Into<String>, advice: &str) -> Self {
        Self::new(name, Verdict::Warning, text, advice)
    }

    fn problem(name: &str, text: impl Into<String>, advice: &str) -> Self {
        Self::new(name, Verdict::Problem, text, advice)
    }
}

impl From<Finding> for Check {
    fn from(finding: Finding) -> Self {
        Self {
            name: finding.subject.to_string(),
            verdict: finding.verdict,
            node: finding.node,
            text: finding.text,
            advice: finding.advice,
        }
    }
}

fn lines(checks: &[Check]) -> String {
    let rows: Vec<_> = checks
        .iter()
        .map(|check| {
            let mut text = visible(&check.text);
            if let Some(node) = &check.node {
                text = format!("{}: {text}", visible(node));
            }
            if !check.advice.is_empty() {
                text += &format!(" – {}", visible(&check.advice));
            }
            [check.verdict.to_string(), check.name.clone(), text]
        })
        .collect();
    table::lay_out("", ["VERDICT", "CHECK", "FOUND"], &rows)
}

/// Its field names are an interface: add, never rename.
#[derive(Serialize)]
struct Report<'a> {
    store: &'a str,
    verdict: String,
    checks: Vec<CheckJson<'a>>,
}

#[derive(Serialize)]
struct CheckJson<'a> {
    check: &'a str,
    verdict: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    text: &'a str,
    advice: &'a str,
}

impl<'a> Report<'a> {
    fn new(store: &'a str, worst: Verdict, checks: &'a [Check]) -> Self {
        let check = |check: &'a Check| CheckJson {
            check: &check.name,
            verdict: check.verdict.to_string(),
            node: check.node.as_deref(),
            text: &check.text,
            advice: &check.advice,
        };
        Self { store, verdict: worst.to_string(), checks: checks.iter().map(check).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_digits_that_say_something() {
        for (micros, shown) in [(42, "0.042ms"), (1_234, "1.2ms"), (250_700, "251ms")] {
            assert_eq!(millis(Duration::from_micros(micros)), shown);
        }
    }

    #[tokio::test]
    async fn every_check_of_a_store_in_memory_is_made() {
        let keeper = lockkeeper::connect("memory:").await.unwrap();
        let checks = examine(&keeper, Duration::ZERO).await;
        let names: Vec<_> = checks.iter().map(|check| check.name.as_str()).collect();
        let expected = ["connection", "version", "round trip", "persistence", "access", "promises"];
        assert_eq!(names, expected, "{checks:?}");
        assert!(checks.iter().all(|check| check.verdict != Verdict::Problem), "{checks:?}");
        assert!(keeper.list("").await.unwrap().is_empty());
    }
}
