//! `id bench`: how many ids a second there are of each kind, on this store and this machine.

use super::arguments::{BenchArguments, KindWord};
use crate::exit::{self, Failure};
use crate::{output, table};
use clap::ValueEnum;
use lockkeeper::id::{DateFormat, Digits, Generator, Ids, Kind, Layout, Ulids, Uuid4, Uuid7};
use lockkeeper::{ErrorKind, Keeper};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many ids a batch has.
const BATCH: u32 = 1_000;

/// How long a thread waits for one id.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is measured: ids in ones and in batches on one thread, and in ones on all.
struct Rates {
    one: f64,
    all: f64,
    batches: f64,
}

pub(crate) async fn bench(asked: &BenchArguments) -> Result<u8, Failure> {
    let keeper = crate::store::open(&asked.store.url()?).await?;
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut rows = Vec::new();
    for word in KindWord::value_variants() {
        if asked.kind.is_some_and(|kind| kind != *word) {
            continue;
        }
        for (name, rates) in of_word(&keeper, *word, asked, threads).await? {
            let [one, all, batches] = [rates.one, rates.all, rates.batches].map(per_second);
            rows.push([name.to_owned(), one, all, batches]);
        }
    }
    let all = format!("{threads} THREADS");
    let titles = ["IDS A SECOND", "1 THREAD", &all, "BATCHES OF 1,000"];
    output::print(table::lay_out("", titles, &rows))?;
    Ok(exit::FINE)
}

async fn of_word(
    keeper: &Keeper,
    word: KindWord,
    asked: &BenchArguments,
    threads: usize,
) -> Result<Vec<(&'static str, Rates)>, Failure> {
    let dated = |digits| Kind::Dated(DateFormat::new(digits));
    let kinds = match word {
        KindWord::Uuid4 => return Ok(vec![("uuid4", measure(Uuid4, asked.time, threads)?)]),
        KindWord::Uuid7 => return Ok(vec![("uuid7", measure(Uuid7, asked.time, threads)?)]),
        KindWord::Ulid => {
            return Ok(vec![("ulid", measure(Ulids::default(), asked.time, threads)?)]);
        }
        KindWord::Striped if asked.kind.is_none() => return Ok(Vec::new()),
        KindWord::Striped => return Err(Failure::usage("striped ids take several stores")),
        KindWord::Sequence => vec![("sequence", Kind::Sequence)],
        KindWord::Segment => vec![("segment", Kind::Segment)],
        KindWord::AutoIncrement => vec![("auto-increment", Kind::AutoIncrement)],
        KindWord::Snowflake => vec![("snowflake", Kind::Snowflake(Layout::default()))],
        KindWord::Dated => {
            vec![("dated", dated(Digits::Second19)), ("dated worker19", dated(Digits::Worker19))]
        }
    };
    let mut measured = Vec::new();
    for (name, kind) in kinds {
        let key = format!("bench-{}", kind.to_string().replace(' ', "-"));
        let ids = match keeper.ids(&key).of_kind(kind).await {
            Ok(ids) => ids,
            // Of all kinds, those that this store does not have are left out.
            Err(error) if error.kind() == ErrorKind::Unsupported && asked.kind.is_none() => {
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        // The first may have to wait for a range.
        ids.next().await?;
        let rates = measure(ids.clone(), asked.time, threads);
        Ids::close(&ids).await?;
        measured.push((name, rates?));
    }
    Ok(measured)
}

fn measure<G>(ids: G, time: Duration, threads: usize) -> Result<Rates, Failure>
where
    G: Generator + 'static,
{
    let ids = Arc::new(ids);
    let one = run(&ids, time, 1, |ids| ids.next_blocking(PATIENCE).map(|_| 1))?;
    let all = run(&ids, time, threads, |ids| ids.next_blocking(PATIENCE).map(|_| 1))?;
    let runtime = tokio::runtime::Handle::current();
    let batches = run(&ids, time, 1, move |ids| {
        runtime.block_on(ids.next_n(BATCH)).map(|ids| ids.len() as u64)
    })?;
    Ok(Rates { one, all, batches })
}

/// Ids a second of so many threads.
fn run<G: Generator + 'static>(
    ids: &Arc<G>,
    time: Duration,
    threads: usize,
    some: impl Fn(&G) -> lockkeeper::Result<u64> + Clone + Send + 'static,
) -> Result<f64, Failure> {
    let begin = Instant::now();
    let workers = (0..threads).map(|_| {
        let (ids, some) = (ids.clone(), some.clone());
        std::thread::spawn(move || -> lockkeeper::Result<u64> {
            let (mut given, mut chunk) = (0, 1);
            let mut before = begin.elapsed();
            while before < time {
                for _ in 0..chunk {
                    given += some(&ids)?;
                }
                // The clock is looked at once for many, where they are quick.
                let now = begin.elapsed();
                let quick = now - before < Duration::from_micros(100);
                chunk = if quick { (chunk * 2).min(1024) } else { (chunk / 2).max(1) };
                before = now;
            }
            Ok(given)
        })
    });
    let workers: Vec<_> = workers.collect();
    let mut given = 0;
    for worker in workers {
        given += worker.join().map_err(|_| Failure::new(exit::NO_STORE, "a thread panicked"))??;
    }
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    let given = given as f64;
    Ok(given / begin.elapsed().as_secs_f64())
}

/// `12.3 million`, `45,600`, `321`.
fn per_second(rate: f64) -> String {
    if rate >= 1e6 {
        return format!("{:.1} million", rate / 1e6);
    }
    if rate >= 1e4 {
        return format!("{:.0},000", rate / 1e3);
    }
    if rate >= 1e3 { format!("{:.1} thousand", rate / 1e3) } else { format!("{rate:.0}") }
}
