//! `lockkeeper`: runs commands under distributed locks, shows who holds them, and prints distributed ids.

mod arguments;
mod bench;
mod break_lock;
// Where there is no `run`, parts of it are not used.
#[cfg_attr(not(unix), allow(dead_code))]
mod claim;
mod config;
mod doctor;
mod events;
mod exit;
mod exporter;
mod globals;
mod hints;
mod id;
mod inspect;
mod json;
#[cfg(unix)]
mod lead;
mod leader;
mod list;
mod local_time;
mod log;
mod manual;
mod output;
mod recipes;
#[cfg(unix)]
mod run;
mod schema;
mod store;
mod table;
mod text;
mod ticket;
mod wait;
mod warnings;
mod watch;

use arguments::{Arguments, Verb};
use clap::Parser;
use exit::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(unix)]
    if let Some(code) = run::shim::if_asked(std::env::args_os())
        .or_else(|| run::warden::if_asked(std::env::args_os()))
    {
        return ExitCode::from(code);
    }
    // Before anything that takes time.
    #[cfg(unix)]
    let early = run::signals::Early::hold_back();
    #[cfg(not(unix))]
    let early = ();
    let code = match Arguments::try_parse() {
        Ok(arguments) => {
            let log = log::install(&arguments.manner);
            let outcome = obey(&arguments.verb, early);
            // Before the last message, which is about the outcome.
            log.flush();
            outcome.unwrap_or_else(|failure| {
                output::say_failure(&failure);
                failure.code
            })
        }
        Err(mut refusal) => {
            hints::add_to(&mut refusal);
            // If even this cannot be printed, there is nothing left to do.
            let _ = refusal.print();
            if refusal.use_stderr() { exit::USAGE } else { exit::FINE }
        }
    };
    ExitCode::from(code)
}

#[cfg(unix)]
type Early = run::signals::Early;
#[cfg(not(unix))]
type Early = ();

fn obey(verb: &Verb, early: Early) -> Result<u8, Failure> {
    #[cfg(unix)]
    if let Verb::Run(asked) = verb {
        return run::run(asked, early);
    }
    #[cfg(unix)]
    if let Verb::Lead(asked) = verb {
        return lead::lead(asked, early);
    }
    if let Verb::Ls(asked) = verb
        && asked.watch
    {
        return watch::watch(&asked.store.url()?, &asked.prefix, asked.every, early);
    }
    if let Verb::Bench(asked) = verb {
        return bench::bench(asked, early);
    }
    if let Verb::Exporter(asked) = verb {
        return exporter::exporter(asked, early);
    }
    if let Verb::Lock(asked) = verb {
        return ticket::lock(asked, early);
    }
    // The other commands end by a signal like any program.
    drop(early);
    match verb {
        #[cfg(unix)]
        Verb::Run(_) => unreachable!("obeyed above"),
        #[cfg(not(unix))]
        Verb::Run(_) => Err(Failure::usage("`run` needs a Unix system: it works with signals")),
        #[cfg(unix)]
        Verb::Lead(_) => unreachable!("obeyed above"),
        Verb::Bench(_) | Verb::Exporter(_) | Verb::Lock(_) => unreachable!("obeyed above"),
        Verb::Leader(asked) => wait_for(leader::leader(asked)),
        Verb::Keep(asked) => wait_for(ticket::keep(asked)),
        Verb::Unlock(asked) => wait_for(ticket::unlock(asked)),
        Verb::Ls(asked) => wait_for(list::ls(asked)),
        Verb::Events(asked) => wait_for(events::events(asked)),
        Verb::Show(asked) => wait_for(inspect::show(asked)),
        Verb::Wait(asked) => wait_for(wait::wait(asked)),
        Verb::Break(asked) => wait_for(break_lock::break_lock(asked)),
        Verb::Id { verb } => wait_for(id::obey(verb)),
        Verb::Doctor(asked) => wait_for(doctor::doctor(asked)),
        Verb::Recipes(asked) => recipes::print(asked),
        Verb::Schema(asked) => schema::print(asked),
        Verb::Completions { shell } => manual::completions(*shell),
        Verb::Man { dir: Some(dir), .. } => manual::write_all(dir),
        Verb::Man { verb, dir: None } => manual::man(verb.as_deref()),
    }
}

/// Runs `work` to its end on the calling thread.
fn wait_for<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = runtime()?;
    let outcome = runtime.block_on(work);
    // A store that does not answer must not keep the command from ending.
    runtime.shutdown_background();
    outcome
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(exit::NO_STORE, format!("cannot start: {error}")))
}
