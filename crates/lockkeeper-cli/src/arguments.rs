//! What can be asked for on the command line.

use crate::id::arguments::IdVerb;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::time::Duration;

const EXIT_CODES: &str = "\
Exit codes:
  the command's own, or 128+n when signal n ended it
  64   wrong usage
  69   the store is unreachable or unusable
  75   the lock was not acquired (another code with -E)
  77   the store refused us
  79   the lock was lost and the command was stopped
  126  the command cannot be executed
  127  the command was not found

The command's environment:
  LOCKKEEPER_NAME   the name, or the names separated by commas
  LOCKKEEPER_TOKEN  the fencing token of each name, in the same order
  LOCKKEEPER_MODE   exclusive, shared or permit
  LOCKKEEPER_STORE  the store, for a run within this one
  LOCKKEEPER_OWNER  the owner: a run within this run takes the same name again without waiting,
                    if the store is re-entrant

Examples:
  lockkeeper run nightly-backup -- backup.sh --full
  lockkeeper run -n --min-hold 50s cron/report -- report.sh
  lockkeeper run --slots 3 -w 10m downloads -- curl -O https://example.org/large.iso";

/// Runs commands under distributed locks, shows who holds them, and prints distributed ids.
#[derive(Debug, Parser)]
#[command(name = "lockkeeper", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a command while holding a lock
    #[command(after_long_help = EXIT_CODES)]
    Run(RunArguments),
    /// List the locks that are held or waited for
    Ls(LsArguments),
    /// Show who holds a lock and who waits for it
    Show(ShowArguments),
    /// Take a lock from its holder and let the next one in
    ///
    /// The holder is told and, if it is `lockkeeper run`, its command is stopped. But it may be
    /// at work for a moment longer: only a resource that checks tokens is safe from it.
    Break(BreakArguments),
    /// Print ids that nobody else gets, and tell what ids say
    #[command(after_long_help = crate::id::arguments::EXAMPLES, arg_required_else_help = true)]
    Id {
        /// The kind of id, or what is asked of ids
        #[command(subcommand)]
        verb: IdVerb,
    },
    /// Print every kind of store and what it promises
    Recipes(RecipesArguments),
    /// Print the tables and the rights that locks in a database need
    ///
    /// For databases in which programs may not create tables. Connects to nothing.
    Schema(SchemaArguments),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or the one of a subcommand
    Man {
        /// The subcommand
        verb: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct StoreArguments {
    /// The store that keeps the locks and counts the ids, as a URL; see `lockkeeper recipes`
    ///
    /// A password given here can be seen in the list of processes; in the variable it cannot.
    #[arg(
        long,
        value_name = "URL",
        env = "LOCKKEEPER_STORE",
        hide_env_values = true,
        default_value = "sqlite:"
    )]
    store: String,
}

impl StoreArguments {
    /// The store; a variable that is set to nothing counts as not set.
    pub(crate) fn url(&self) -> &str {
        let set_to_nothing = std::env::var_os("LOCKKEEPER_STORE").is_some_and(|url| url.is_empty());
        if self.store.is_empty() && set_to_nothing { "sqlite:" } else { &self.store }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Share the lock with others that share it
    #[arg(short, long, conflicts_with = "slots")]
    pub(crate) shared: bool,

    /// Let up to N hold the lock at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) slots: Option<u32>,

    /// Wait at most this long for the lock [default: for ever]
    #[arg(short, long, value_name = "DUR", value_parser = lockkeeper::parse_duration, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,

    /// Do not wait at all
    #[arg(short = 'n', long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// How long others wait after lockkeeper or its machine dies; renewed while the command runs
    #[arg(long, value_name = "DUR", default_value = "30s", value_parser = lockkeeper::parse_duration, allow_hyphen_values = true)]
    pub(crate) ttl: Duration,

    /// Stop the command when it has held the lock for this long
    #[arg(long, value_name = "DUR", value_parser = lockkeeper::parse_duration, allow_hyphen_values = true)]
    pub(crate) max_hold: Option<Duration>,

    /// Keep the lock for at least this long, even when the command ends earlier
    #[arg(long, value_name = "DUR", value_parser = lockkeeper::parse_duration, allow_hyphen_values = true)]
    pub(crate) min_hold: Option<Duration>,

    /// Time between SIGTERM and SIGKILL when the lock is lost, at most a third of the ttl
    /// [default: 5s]
    #[arg(long, value_name = "DUR", value_parser = lockkeeper::parse_duration, allow_hyphen_values = true)]
    pub(crate) grace: Option<Duration>,

    /// What to do with the command when the lock is lost
    #[arg(long, value_name = "WHAT", default_value = "kill")]
    pub(crate) on_lost: OnLost,

    /// The exit code when the lock was not acquired
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = crate::exit::NOT_ACQUIRED)]
    pub(crate) conflict_exit_code: u8,

    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// The lock; several, separated by commas, are taken all or none
    #[arg(value_name = "NAME[,NAME…]")]
    pub(crate) names: String,

    /// The command and its arguments; no shell in between
    #[arg(
        value_name = "CMD",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_hint = clap::ValueHint::CommandWithArguments
    )]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// Stop it
    Kill,
    /// Print a warning and let it go on
    Warn,
}

#[derive(Debug, Args)]
pub(crate) struct LsArguments {
    /// Only names that start with this
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// The lock
    pub(crate) name: String,

    /// Print the keys, nodes or rows in which the store keeps it, to compare with what another
    /// library uses
    #[arg(long)]
    pub(crate) keys: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArguments,
}

#[derive(Debug, Args)]
pub(crate) struct BreakArguments {
    /// The lock
    pub(crate) name: String,

    /// The token it is held with, as `show` prints it: a later holder is left alone
    #[arg(long, value_name = "T")]
    pub(crate) token: NonZeroU64,

    /// Why; the holder is told
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) reason: String,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArguments,
}

#[derive(Debug, Args)]
pub(crate) struct SchemaArguments {
    /// Print what brings tables of this earlier version to the one of this program
    #[arg(long, value_name = "VERSION")]
    pub(crate) from: Option<u32>,

    #[command(flatten)]
    pub(crate) store: StoreArguments,
}

#[derive(Debug, Args)]
pub(crate) struct RecipesArguments {
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    pub(crate) json: bool,

    /// Print a Markdown table
    #[arg(long)]
    pub(crate) markdown: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn run(words: &[&str]) -> Result<RunArguments, clap::Error> {
        let words = ["lockkeeper", "run"].iter().chain(words);
        match Arguments::try_parse_from(words)?.verb {
            Verb::Run(asked) => Ok(asked),
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_command_keeps_its_own_options_with_and_without_dashes() {
        for words in [
            &["-n", "x", "ls", "-n", "--ttl", "--", "a"][..],
            &["-n", "x", "--", "ls", "-n", "--ttl", "--", "a"],
        ] {
            let asked = run(words).unwrap();
            assert!(asked.no_wait);
            assert_eq!(asked.names, "x");
            assert_eq!(asked.command, ["ls", "-n", "--ttl", "--", "a"]);
        }
    }

    #[test]
    fn what_excludes_each_other_is_refused() {
        assert!(run(&["-n", "-w", "1s", "x", "true"]).is_err());
        assert!(run(&["-s", "--slots", "2", "x", "true"]).is_err());
        assert!(run(&["-E", "256", "x", "true"]).is_err());
        assert!(run(&["-E", "-1", "x", "true"]).is_err());
        assert!(run(&["--slots", "0", "x", "true"]).is_err());
        assert!(run(&["x"]).is_err());
    }
}
