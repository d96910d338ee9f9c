//! `lab compare`: every sound recipe of ours and the libraries that people would take instead, on the
//! same servers, by the same measures.
//!
//! A run goes through the rows one after another and stores each when it is done, so that one that was
//! killed goes on where it was. What could not be measured is *unknown*, with the reason. The pages are
//! made of the stored run alone: nothing in them is typed in.
//!
//! - [`Cell`], [`mod@column`], [`StoredRun`]: what is stored.
//! - `contender` who is compared, `measure` the measures, `contend` the program that takes locks on
//!   command for our own recipes.
//! - [`render`]: the pages, the ranks, and which to take.

mod cell;
pub mod column;
mod contend;
mod contender;
mod machine;
mod measure;
mod progress;
pub mod render;
mod stored;

pub use cell::Cell;
pub use contend::{Whose, contend};
pub use machine::Machine;
pub use stored::{Comparison, Row, StoredRun, load, save};

use crate::interop::Cache;
use crate::server::{Kind, Lab};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use contender::Contender;
use measure::Pace;
use progress::Progress;
use std::path::{Path, PathBuf};

/// A comparison, as asked for on the command line.
#[derive(Debug, Clone, Args)]
pub struct CompareArguments {
    /// The store to measure alone; all of them, and the pages in docs, if none is named
    pub store: Option<String>,
    /// Only rows whose name contains this
    #[arg(long, value_name = "PART")]
    pub only: Option<String>,
    /// Measure a second time, and keep both runs
    #[arg(long)]
    pub again: bool,
    /// Forget what an unfinished run has measured
    #[arg(long)]
    pub fresh: bool,
    /// Short, to see that everything works; never goes to docs
    #[arg(long)]
    pub quick: bool,
    /// Only make the pages in docs anew, of the stored run
    #[arg(long, conflicts_with_all = ["again", "fresh", "quick", "only", "store"])]
    pub render: bool,
}

impl CompareArguments {
    /// Whether the run is one for the pages in docs.
    fn is_whole(&self) -> bool {
        self.store.is_none() && self.only.is_none() && !self.quick
    }

    /// What an unfinished run is called.
    fn name(&self) -> String {
        let words = [self.store.as_deref().unwrap_or("all"), self.only.as_deref().unwrap_or("")];
        let flags = [(self.quick, "quick"), (self.again, "again")];
        let flags = flags.into_iter().filter(|(set, _)| *set).map(|(_, word)| word);
        let words: Vec<&str> =
            words.into_iter().filter(|word| !word.is_empty()).chain(flags).collect();
        words.join("-").replace(|it: char| !it.is_ascii_alphanumeric() && it != '-', "_")
    }
}

/// The folder of the pages.
fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Measures, stores, and makes the pages.
///
/// # Errors
/// When the request makes no sense or nothing can be written. What cannot be measured is no error.
pub fn run(arguments: &CompareArguments) -> Result<()> {
    let stored_file = docs().join("comparison.json");
    let published: Option<Comparison> = load(&stored_file)?;
    if arguments.render {
        let published = published.context("there is no stored run: cargo xtask compare")?;
        return pages(&published, &docs().join("comparison"));
    }
    if arguments.again && arguments.is_whole() {
        ensure!(published.is_some(), "there is no first run: cargo xtask compare");
    }
    let folder = beside_cargo()?;
    let part = folder.join(format!("{}-unfinished.json", arguments.name()));
    let run = measured(arguments, &part, published.as_ref().map(|it| &it.first))?;
    if !arguments.is_whole() {
        let alone = Comparison { first: run, again: None };
        let path = folder.join(arguments.name());
        save(&path.with_extension("json"), &alone)?;
        pages(&alone, &path)?;
        print!("{}", render::markdown(&alone));
        return finished(&part);
    }
    let comparison = match published {
        Some(published) if arguments.again => {
            Comparison { first: published.first, again: Some(run) }
        }
        _ => Comparison { first: run, again: None },
    };
    save(&stored_file, &comparison)?;
    pages(&comparison, &docs().join("comparison"))?;
    finished(&part)
}

/// Only when everything is stored: a run that is killed before goes on.
fn finished(part: &Path) -> Result<()> {
    std::fs::remove_file(part).context("cannot remove what the unfinished run had stored")
}

/// Where unfinished runs are kept: beside what cargo builds.
fn beside_cargo() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.parent().and_then(Path::parent).context("no target directory")?;
    Ok(target.join("compare"))
}

fn pages(comparison: &Comparison, path: &Path) -> Result<()> {
    for (extension, text) in
        [("md", render::markdown(comparison)), ("html", render::html(comparison))]
    {
        let file = path.with_extension(extension);
        stored::write(&file, &text)?;
        eprintln!("made {}", file.display());
    }
    for (name, picture) in render::pictures(comparison) {
        let file = path.with_file_name("pictures").join(name);
        stored::write(&file, &picture)?;
        eprintln!("made {}", file.display());
    }
    Ok(())
}

/// The rows that were asked for; those that an unfinished run has stored are not measured again.
fn measured(
    arguments: &CompareArguments,
    part: &Path,
    earlier: Option<&StoredRun>,
) -> Result<StoredRun> {
    let mut rows = contender::all(arguments.store.as_deref());
    if let Some(only) = &arguments.only {
        rows.retain(|row| row.name().to_lowercase().contains(&only.to_lowercase()));
    }
    if rows.is_empty() {
        let known = Kind::ALL.map(Kind::word).join(", ");
        bail!("nothing is called that: name one of memory, sqlite, {known}");
    }
    let lab = Lab::open()?;
    let cache = Cache::open()?;
    let unfinished = if arguments.fresh { None } else { load::<StoredRun>(part)? };
    let mut run = unfinished.unwrap_or_else(|| StoredRun {
        date: machine::date(),
        machine: Machine::here(lab.folder()),
        quick: arguments.quick,
        rows: Vec::new(),
    });
    let done = |row: &Contender, run: &StoredRun| run.row((row.store(), &row.name())).is_some();
    if !run.rows.is_empty() {
        eprintln!("going on with the run of {}; --fresh begins anew", run.date);
    }
    rows.retain(|row| !done(row, &run));
    // Also of a run that was killed after its last row.
    save(part, &run)?;
    install(&rows, &cache);
    let expected = rows.iter().map(|row| progress::expected(row, earlier)).sum();
    let mut progress = Progress::new(expected, rows.len());
    let pace = if arguments.quick { Pace::quick() } else { Pace::usual() };
    for contender in rows {
        progress.row(&contender);
        let row = measure::measure(contender, &lab, &cache, pace, &mut progress);
        progress.done(progress::expected(&contender, earlier), row.seconds);
        run.rows.push(row);
        save(part, &run)?;
    }
    Ok(run)
}

/// Fetches the libraries before anything is measured; one that cannot be had is unknown later.
fn install(rows: &[Contender], cache: &Cache) {
    for row in rows.iter().filter(|row| !row.is_ours()) {
        eprint!("\r\x1b[Kinstalling {}", row.name());
        if let Err(error) = row.program(cache) {
            eprintln!("\r\x1b[K{} cannot be installed: {error:#}", row.name());
        }
    }
    eprint!("\r\x1b[K");
}
