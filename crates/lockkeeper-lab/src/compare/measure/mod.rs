//! The measures, one file each. Each puts a cell for everything that it is about, whatever happens.

mod code;
pub(crate) mod faults;
mod memory;
mod probe;
mod quiet;
mod speed;
mod stage;
pub(crate) mod turns;
mod wire;

use super::cell::Cell;
use super::column::{self, CAPABILITIES};
use super::contender::Contender;
use super::machine::flush;
use super::progress::Progress;
use super::stored::Row;
use crate::interop::{Cache, Peer};
use crate::server::{Kind, Lab};
use anyhow::Result;
use lockkeeper::backend::Capability;
use stage::Stage;
use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How long everything takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    warm_up: Duration,
    window: Duration,
    settling: Duration,
    watching: Duration,
    fault_seconds: u64,
}

impl Pace {
    /// Long enough for figures to publish.
    pub(crate) fn usual() -> Self {
        Self {
            warm_up: Duration::from_millis(700),
            window: Duration::from_millis(2500),
            settling: Duration::from_secs(2),
            watching: Duration::from_secs(5),
            fault_seconds: 8,
        }
    }

    /// To see that everything works.
    pub(crate) fn quick() -> Self {
        Self {
            warm_up: Duration::from_millis(200),
            window: Duration::from_millis(800),
            settling: Duration::from_secs(1),
            watching: Duration::from_secs(1),
            fault_seconds: 4,
        }
    }

    /// How long so many waiters have to get in line.
    fn gathering(&self, waiters: usize) -> Duration {
        if waiters > 100 { Duration::from_millis(1500) } else { Duration::from_millis(500) }
    }
}

/// What one row is measured with.
pub(crate) struct Bench<'a> {
    contender: Contender,
    kind: Option<Kind>,
    cache: &'a Cache,
    pace: Pace,
    /// The store, as the row wants it.
    url: String,
    cells: BTreeMap<String, Cell>,
}

impl Bench<'_> {
    fn put(&mut self, key: &str, cell: Cell) {
        self.cells.insert(key.to_owned(), cell);
    }

    /// A program of the row.
    fn peer(&self) -> Result<Peer> {
        self.peer_at(&self.url)
    }

    /// A program of the row that reaches the store another way.
    fn peer_at(&self, url: &str) -> Result<Peer> {
        let mut command = self.contender.program(self.cache)?;
        // Some log what is done to them here on purpose.
        command.stderr(Stdio::null());
        Peer::start(command, url)
    }
}

/// Measures one row.
///
/// # Errors
/// Never for what could not be measured: that is unknown.
pub(crate) fn measure(
    contender: Contender,
    lab: &Lab,
    cache: &Cache,
    pace: Pace,
    progress: &mut Progress,
) -> Row {
    let begin = Instant::now();
    let flush = flush(lab.folder());
    let mut bench = Bench {
        contender,
        kind: contender.kind(),
        cache,
        pace,
        url: String::new(),
        cells: BTreeMap::new(),
    };
    // A server of its own: what the row before left there would be measured too.
    match Stage::open(lab, contender) {
        Ok(stage) => {
            bench.url.clone_from(&stage.url);
            for (what, measure) in PARTS {
                progress.part(what);
                measure(&mut bench, &stage);
            }
        }
        Err(error) => {
            for key in column::keys() {
                bench.put(&key, Cell::unknown(&error));
            }
        }
    }
    progress.part("faults");
    faults::measure(&mut bench, lab);
    code::measure(&mut bench);
    capabilities(&mut bench);
    Row {
        store: contender.store().to_owned(),
        name: contender.name(),
        version: contender.version(),
        ours: contender.is_ours(),
        reach: contender.reach().to_string(),
        flush,
        seconds: begin.elapsed().as_secs_f64(),
        cells: bench.cells,
    }
}

type Part = (&'static str, fn(&mut Bench<'_>, &Stage));

const PARTS: [Part; 3] = [
    ("speed", |bench, _| speed::measure(bench)),
    ("waiting", |bench, _| quiet::measure(bench)),
    ("memory", |bench, stage| memory::measure(bench, stage)),
];

/// Ours promise what the contract tests; what others do is told by what was seen of them.
fn capabilities(bench: &mut Bench<'_>) {
    let cell = match bench.contender.recipe() {
        Some(recipe) => {
            let mut capability = recipe.capability;
            // What the recipe could keep, this server does not.
            capability.durable &= !matches!(bench.contender, Contender::InMemory(_));
            Cell::Words(promised(&capability))
        }
        None => {
            let seen = |key: &str, most: f64, word: &str| {
                let figure = bench.cells.get(key).and_then(Cell::figure);
                figure.filter(|figure| *figure <= most).map(|_| format!("{word} (as seen)"))
            };
            let words = [seen("fair-turns", 2.0, "fair"), seen("requests-1", 1.0, "woken")];
            Cell::Words(words.into_iter().flatten().collect())
        }
    };
    bench.put(CAPABILITIES, cell);
}

fn promised(capability: &Capability) -> Vec<String> {
    let words = [
        (capability.fair, "fair"),
        (capability.notified, "woken"),
        (capability.fencing, "token"),
        (capability.shared, "readers"),
        (capability.permits, "permits"),
        (capability.reentrant, "re-entry"),
        (capability.durable, "durable"),
        (capability.inspects, "inspects"),
        (capability.portable, "portable"),
        (capability.atomic_multi, "many at once"),
        (capability.sequences, "numbers"),
    ];
    words.into_iter().filter(|(has, _)| *has).map(|(_, word)| word.to_owned()).collect()
}
