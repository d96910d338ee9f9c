//! `bench`: how fast locks are on this store, beside one bare round trip to it.

mod measure;
mod progress;
mod samples;

use crate::arguments::StoreArguments;
use crate::claim::{self, LAST_WAIT};
use crate::exit::{self, Failure};
use crate::ticket::Interrupt;
use crate::{Early, json, output, table};
use clap::Args;
use lockkeeper::Keeper;
use measure::Plan;
use progress::Progress;
use samples::Samples;
use serde::Serialize;
use std::time::Duration;

/// The names of a bench; the same each time, so that nothing piles up in stores that remember names.
const PREFIX: &str = "lockkeeper/bench";

pub(crate) const EXIT_CODES: &str = "\
Measured are: connecting; one bare round trip to the store; taking and releasing a free lock, by one
task and by several tasks with a name each; and how long a name is nobody's when several wait for it,
each with a connection of its own. Beside each figure stands how many bare round trips that is: it
says more of the store and the recipe than of this machine. All names begin with \"lockkeeper/bench\",
and are free again at the end. The store is kept busy meanwhile.

Exit codes:
  64   wrong usage
  69   the store is unreachable or unusable
  75   another bench is at work on this store
  77   the store refused us

Examples:
  lockkeeper bench --store redis://127.0.0.1
  lockkeeper bench --seconds 30 --tasks 64 --json";

#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// How long to measure in all, about
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,

    /// How many tasks there are where there are several
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    tasks: u16,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArguments,
}

pub(crate) fn bench(asked: &BenchArguments, early: Early) -> Result<u8, Failure> {
    crate::wait_for(carry_out(asked, early))
}

async fn carry_out(asked: &BenchArguments, early: Early) -> Result<u8, Failure> {
    // From the first moment on a signal gives back what was taken before it ends us.
    let mut interrupt = Interrupt::listen(early)?;
    let url = asked.store.url()?;
    let keeper = tokio::select! {
        biased;
        code = interrupt.code() => return Ok(code),
        keeper = claim::connect(&url) => keeper?,
    };
    let outcome = tokio::select! {
        biased;
        code = interrupt.code() => Ok(code),
        rows = alone(&keeper, &url, asked) => match rows {
            Ok(rows) => print(&keeper, asked, &rows),
            Err(failure) => Err(failure),
        },
    };
    // Of what an interrupt left half done, too.
    keeper.close(LAST_WAIT).await;
    outcome
}

/// Measures while no other bench does.
async fn alone(keeper: &Keeper, url: &str, asked: &BenchArguments) -> Result<Vec<Row>, Failure> {
    let Some(turn) = keeper.lock(PREFIX).note("lockkeeper bench").try_acquire().await? else {
        let message = format!("another bench is at work: {PREFIX:?} is held; try again later");
        return Err(Failure::new(exit::NOT_ACQUIRED, message));
    };
    let rows = measured(keeper, url, asked).await;
    let released = turn.release().await;
    let rows = rows?;
    released?;
    Ok(rows)
}

async fn measured(keeper: &Keeper, url: &str, asked: &BenchArguments) -> Result<Vec<Row>, Failure> {
    let tasks = usize::from(asked.tasks);
    let each = Duration::from_secs(asked.seconds) / 3;
    let plan = Plan { url, keeper, each, tasks };
    let progress = Progress::new(Duration::from_secs(asked.seconds));
    let connects = progress.during("connecting", plan.connects()).await?;
    let trips = progress.during("bare round trips", plan.round_trips()).await?;
    let one = progress.during("one task", plan.one_task()).await?;
    let several = progress.during("a name for each task", plan.a_name_each()).await?;
    let handed = progress.during("one name for all", plan.one_name()).await?;
    let bare = trips.percentile(50);
    Ok(vec![
        Row::new("bare round trip".into(), &trips, bare),
        Row::new("connect".into(), &connects, bare),
        Row::new("acquire + release, 1 task".into(), &one, bare),
        Row::new(format!("acquire + release, {tasks} tasks"), &several, bare),
        Row::new(format!("hand-over, {tasks} waiting"), &handed, bare),
    ])
}

/// Its field names are an interface: add, never rename.
#[derive(Debug, Serialize)]
struct Row {
    what: String,
    count: u64,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
    per_second: Option<f64>,
    /// How many bare round trips the median is.
    round_trips: Option<f64>,
}

impl Row {
    fn new(what: String, samples: &Samples, bare: Option<Duration>) -> Self {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let tenths = |number: f64| (number * 10.0).round() / 10.0;
        let p50 = samples.percentile(50);
        let ratio = p50.zip(bare.filter(|bare| !bare.is_zero()));
        Self {
            what,
            count: samples.count(),
            p50_us: p50.map(micros),
            p99_us: samples.percentile(99).map(micros),
            per_second: samples.rate().map(tenths),
            round_trips: ratio.map(|(p50, bare)| tenths(p50.as_secs_f64() / bare.as_secs_f64())),
        }
    }

    fn cells(&self) -> [String; 5] {
        let absent = || "-".to_owned();
        let time = |micros: Option<u64>| match micros {
            None => absent(),
            Some(micros @ ..1000) => format!("{micros}µs"),
            Some(micros @ ..100_000) => format!("{}.{}ms", micros / 1000, micros % 1000 / 100),
            Some(micros) => format!("{}ms", micros / 1000),
        };
        [
            self.what.clone(),
            time(self.p50_us),
            time(self.p99_us),
            self.per_second.map_or_else(absent, |rate| format!("{rate:.0}")),
            self.round_trips.map_or_else(absent, |ratio| format!("{ratio:.1}")),
        ]
    }
}

fn print(keeper: &Keeper, asked: &BenchArguments, rows: &[Row]) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct Report<'a> {
        store: String,
        seconds: u64,
        tasks: u16,
        rows: &'a [Row],
    }
    output::print(if asked.json {
        let (store, seconds, tasks) = (keeper.to_string(), asked.seconds, asked.tasks);
        json::line(&Report { store, seconds, tasks, rows })
    } else {
        let titles = ["WHAT", "P50", "P99", "PER SECOND", "ROUND TRIPS"];
        let rows: Vec<_> = rows.iter().map(Row::cells).collect();
        format!("{keeper}\n{}", table::lay_out("", titles, &rows))
    })?;
    Ok(exit::FINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_figures_and_their_ratio() {
        let mut samples = Samples::default();
        (1..=100).for_each(|at| samples.add(Duration::from_micros(at * 10)));
        let samples = samples.over(Duration::from_secs(1));
        let row = Row::new("x".into(), &samples, Some(Duration::from_micros(250)));
        assert_eq!((row.p50_us, row.p99_us), (Some(500), Some(990)));
        assert_eq!(row.cells(), ["x", "500µs", "990µs", "100", "2.0"].map(str::to_owned));
        let nothing = Row::new("y".into(), &Samples::default(), None);
        assert_eq!(nothing.cells()[1..], ["-", "-", "-", "-"].map(str::to_owned));
    }
}
