//! `lab run` and its siblings.

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use lockkeeper_lab::check::{self, Demands, Report, Verdict};
use lockkeeper_lab::compare::{self, CompareArguments, Whose};
use lockkeeper_lab::history::Record;
use lockkeeper_lab::ids::{self, IdsArguments, TakeArguments};
use lockkeeper_lab::interop;
use lockkeeper_lab::picture;
use lockkeeper_lab::screen::{self, ScreenArguments};
use lockkeeper_lab::server;
use lockkeeper_lab::stories::{self, ActArguments, StoriesArguments};
use lockkeeper_lab::workload::{self, RunArguments, WorkArguments};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Has processes contend for locks while some are broken, and judges what happened
///
/// Returns 0 for PASS, 1 for FAIL, 2 for UNKNOWN, and 3 when the lab itself could not do its work.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Contend, break, judge
    Run(RunArguments),
    /// Take ids, break, judge
    Ids(IdsArguments),
    /// Judge a saved history again
    Check {
        /// A file of events, or the folder of a run
        history: PathBuf,
        /// Also judge whether claims were granted in the order they were made
        #[arg(long)]
        fair: bool,
        /// Also judge whether ids grew from one generator to another
        #[arg(long)]
        ids_across: bool,
    },
    /// Measure every recipe and other libraries on the same servers
    Compare(CompareArguments),
    /// Try locks of ours and of other libraries against each other
    Interop {
        /// The store that they meet on; all of them if none is named
        store: Option<String>,
        /// What a test program takes: a part of the names of trials, --list, --test-threads
        #[arg(last = true)]
        words: Vec<String>,
    },
    /// Show the known failures of distributed locks, and their cures
    Stories(StoriesArguments),
    /// Record a session of the command line, and draw the picture of the README
    Screen(ScreenArguments),
    /// Start one of each server, and wait for Ctrl-C
    Servers,
    /// Install what the servers need, if it is missing
    Setup,
    /// Run a command with one of each server in its environment
    #[command(hide = true)]
    WithServers {
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Our side of `interop`
    #[command(hide = true)]
    Peer {
        /// The store
        url: String,
    },
    /// One client of a story
    #[command(hide = true)]
    Act(ActArguments),
    /// One process of a comparison
    #[command(hide = true)]
    Contend {
        /// Whose locks are taken
        whose: Whose,
        /// The store
        url: String,
    },
    /// One process of a run
    #[command(hide = true)]
    Work(WorkArguments),
    /// One process of a run about ids
    #[command(hide = true)]
    TakeIds(TakeArguments),
}

/// The exit code when `lab` itself could not do its work: this is not a verdict.
const LAB_FAILED: u8 = 3;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are not failures. If printing fails, there is no way to report that.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(LAB_FAILED) } else { ExitCode::SUCCESS };
        }
    };
    obey(arguments.verb).unwrap_or_else(|error| {
        eprintln!("lab: {error:#}");
        ExitCode::from(LAB_FAILED)
    })
}

fn obey(verb: Verb) -> Result<ExitCode> {
    match verb {
        Verb::Work(arguments) => {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(workload::work(arguments))?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::TakeIds(arguments) => {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(ids::take(arguments))?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Ids(arguments) => Ok(exit_code(ids::run(&arguments)?.verdict)),
        Verb::Compare(arguments) => compare::run(&arguments).map(|()| ExitCode::SUCCESS),
        Verb::Contend { whose, url } => compare::contend(whose, &url).map(|()| ExitCode::SUCCESS),
        Verb::Interop { store, words } => interop::run(store.as_deref(), &words),
        Verb::Peer { url } => interop::serve(&url).map(|()| ExitCode::SUCCESS),
        Verb::Stories(arguments) => Ok(exit_code(stories::run(&arguments)?)),
        Verb::Act(arguments) => {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(stories::act(arguments))?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Screen(arguments) => screen::run(&arguments).map(|()| ExitCode::SUCCESS),
        Verb::Servers => server::servers().map(|()| ExitCode::SUCCESS),
        Verb::Setup => server::setup().map(|()| ExitCode::SUCCESS),
        Verb::WithServers { command } => server::with_servers(&command),
        Verb::Run(arguments) => run(&arguments),
        Verb::Check { history, fair, ids_across } => {
            let records = workload::load(&history)?;
            let demands = Demands { fair, ids_across, ..Demands::none() };
            Ok(exit_code(judge(&records, &demands, &picture_beside(&history))?.verdict))
        }
    }
}

fn run(arguments: &RunArguments) -> Result<ExitCode> {
    let run = workload::run(arguments)?;
    let faults = arguments.fault.iter().map(|fault| fault.word().to_owned());
    let stalls = Some(run.stalls);
    let demands = Demands { fair: run.fair, stalls, ..Demands::of_a_run(faults.collect()) };
    let report = judge(&run.records, &demands, &run.folder.join("timeline.html"))?;
    println!("history  {}", run.folder.display());
    for remark in &run.remarks {
        println!("note     {remark}");
    }
    if report.verdict == Verdict::Unknown {
        println!("note     too little happened to tell: more --seconds or --clients see more");
    }
    if report.verdict != Verdict::Pass {
        println!("again    {}", arguments.again(run.seed));
    }
    Ok(exit_code(report.verdict))
}

fn judge(records: &[Record], demands: &Demands, picture: &Path) -> Result<Report> {
    let report = check::check(records, demands);
    print!("{report}");
    std::fs::write(picture, picture::timeline(records, &report))
        .with_context(|| format!("cannot write {}", picture.display()))?;
    println!("picture  {}", picture.display());
    Ok(report)
}

fn picture_beside(history: &Path) -> PathBuf {
    if history.is_dir() { history.join("timeline.html") } else { history.with_extension("html") }
}

fn exit_code(verdict: Verdict) -> ExitCode {
    match verdict {
        Verdict::Pass => ExitCode::SUCCESS,
        Verdict::Fail => ExitCode::FAILURE,
        Verdict::Unknown => ExitCode::from(2),
    }
}
