//! `lockkeeper`: runs commands under distributed locks, shows who holds them, and prints distributed ids.

mod arguments;
mod break_lock;
mod exit;
mod id;
mod inspect;
mod json;
mod manual;
mod output;
mod recipes;
#[cfg(unix)]
mod run;
mod table;
mod text;
mod warnings;

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
        Ok(arguments) => obey(&arguments.verb, early).unwrap_or_else(|failure| {
            output::say(&failure.message);
            failure.code
        }),
        Err(refusal) => {
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
    // The other commands end by a signal like any program.
    drop(early);
    match verb {
        #[cfg(unix)]
        Verb::Run(_) => unreachable!("obeyed above"),
        #[cfg(not(unix))]
        Verb::Run(_) => Err(Failure::usage("`run` needs a Unix system: it works with signals")),
        Verb::Ls(asked) => wait_for(inspect::ls(asked)),
        Verb::Show(asked) => wait_for(inspect::show(asked)),
        Verb::Break(asked) => wait_for(break_lock::break_lock(asked)),
        Verb::Id { verb } => wait_for(id::obey(verb)),
        Verb::Recipes(asked) => recipes::print(asked),
        Verb::Schema(asked) => {
            let url = asked.store.url();
            output::print(match asked.from {
                None => lockkeeper::backend::sql::schema_script(url)?,
                Some(version) => lockkeeper::backend::sql::migration_script(url, version)?,
            })?;
            Ok(exit::FINE)
        }
        Verb::Completions { shell } => manual::completions(*shell),
        Verb::Man { verb } => manual::man(verb.as_deref()),
    }
}

/// Runs `work` to its end on the calling thread.
fn wait_for<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let warnings = warnings::show();
    let runtime = runtime()?;
    let outcome = runtime.block_on(work);
    // Before the last message, which is about the outcome.
    warnings.flush();
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
