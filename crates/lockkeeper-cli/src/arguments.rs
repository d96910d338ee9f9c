//! What can be asked for on the command line.

use crate::globals::Manner;
pub(crate) use crate::globals::StoreArguments;
use crate::id::arguments::IdVerb;
use crate::ticket::arguments::{self as ticket, KeepArguments, LockArguments, UnlockArguments};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

const EXIT_CODES: &str = "\
Exit codes:
  the command's own, or 128+n when signal n ended it
  64   wrong usage, or something that is no ticket
  69   the store is unreachable or unusable
  75   the lock was not acquired (another code with -E)
  77   the store refused us
  79   the lock was lost and the command was stopped, or a ticket is no longer good and the
       command was not started
  126  the command cannot be executed
  127  the command was not found

The command's environment:
  LOCKKEEPER_NAME   the name, or the names separated by commas; a comma in a name is `\\,`
  LOCKKEEPER_TOKEN  the fencing token of each name, in the same order
  LOCKKEEPER_MODE   exclusive, shared or permit
  LOCKKEEPER_STORE  the store, for a run within this one
  LOCKKEEPER_OWNER  the owner: a run within this run takes the same name again without waiting,
                    if the store is re-entrant; not set for tickets of several `lockkeeper lock`

Examples:
  lockkeeper run nightly-backup -- backup.sh --full
  lockkeeper run -n --min-hold 50s cron/report -- report.sh
  lockkeeper run nightly-dump -c 'pg_dump app | gzip > app.sql.gz'
  lockkeeper run --slots 3 -w 10m downloads -- curl -O https://example.org/large.iso
  lockkeeper run --ticket-file deploy.ticket -- ./deploy.sh";

/// Several ways, of which clap would show a mixture.
const RUN_USAGE: &str = "\
lockkeeper run [OPTIONS] <NAME[,NAME…]> [--] <CMD>...
       lockkeeper run [OPTIONS] <NAME[,NAME…]> -c <LINE>
       lockkeeper run [OPTIONS] --ticket <TICKET> -- <CMD>...
       lockkeeper run [OPTIONS] --ticket-file <FILE> -- <CMD>...";

/// Runs commands under distributed locks, shows who holds them, and prints distributed ids.
#[derive(Debug, Parser)]
#[command(
    name = "lockkeeper",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_long_help = crate::config::HELP
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) verb: Verb,

    // So that it can stand before the verb, where nobody reads it: clap passes it on.
    #[command(flatten)]
    _store: StoreArguments,

    #[command(flatten)]
    pub(crate) manner: Manner,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a command while holding a lock
    #[command(after_long_help = EXIT_CODES, override_usage = RUN_USAGE)]
    Run(RunArguments),
    /// Take a lock, print its ticket, and leave it locked
    ///
    /// The lock stays for its ttl, whatever becomes of this process. Whoever has the ticket can keep
    /// the lock for longer (`lockkeeper keep`), run a command under it (`lockkeeper run --ticket`) and
    /// give it back (`lockkeeper unlock`), on any machine that reaches the store. Nobody else needs it:
    /// treat a ticket as you would a password.
    #[command(after_long_help = ticket::LOCK_EXIT_CODES)]
    Lock(LockArguments),
    /// Renew a lock by its ticket, once, and print for how long it is valid
    #[command(after_long_help = ticket::EXIT_CODES)]
    Keep(KeepArguments),
    /// Give a lock back by its ticket
    #[command(after_long_help = ticket::EXIT_CODES)]
    Unlock(UnlockArguments),
    /// List the locks that are held or waited for
    ///
    /// Exits with 0 also when there are none. In order of name. Of more than 10,000 locks some stores tell in an order of their own (Redis), in
    /// which one can come twice; they are printed as they come.
    Ls(LsArguments),
    /// Follow what happens to the locks of a store
    ///
    /// The list of locks is compared with the one before, every second or as --every says: what begins
    /// and ends between two looks is not seen, and times are those of the looks. A program that wants
    /// every event of its own locks gets them from the library.
    #[command(after_long_help = crate::events::EXIT_CODES)]
    Events(crate::events::EventsArguments),
    /// Serve what is in a store to Prometheus: who holds, who waits, for how long
    ///
    /// Seen from outside, for programs in any language. A program that uses the library can tell more
    /// of its own locks, with the feature `metrics`.
    #[command(after_long_help = crate::exporter::EXIT_CODES)]
    Exporter(crate::exporter::ExporterArguments),
    /// Show who holds a lock and who waits for it
    Show(ShowArguments),
    /// Wait until a lock is free, and take nothing
    ///
    /// Free means that nobody holds it in any mode, and nobody waits for it: the lock of one who has
    /// just left belongs to the first of those. Another can take it before the next command begins;
    /// to be the only one, use `lockkeeper run`. The store is asked about once a second.
    #[command(after_long_help = crate::wait::EXIT_CODES)]
    Wait(crate::wait::WaitArguments),
    /// Take a lock from its holder and let the next one in
    ///
    /// The holder is told and, if it is `lockkeeper run`, its command is stopped. But it may be
    /// at work for a moment longer: only a resource that checks tokens is safe from it.
    Break(BreakArguments),
    /// Run a command while leading, and again after the lead was lost
    ///
    /// Any number of candidates can wait for the same name; one at a time runs its command. When the
    /// lead is lost, the command is stopped as by `lockkeeper run`, and the candidate waits for its
    /// next turn. An election is a lock: `show`, `wait`, `ls` and `break` take its name, too.
    #[cfg(unix)]
    #[command(after_long_help = crate::lead::EXIT_CODES)]
    Lead(crate::lead::LeadArguments),
    /// Tell who leads, since when, in which term
    ///
    /// The time counts from the grant; on etcd and ZooKeeper, which do not write that down, from when
    /// the leader became a candidate.
    #[command(after_long_help = crate::leader::EXIT_CODES)]
    Leader(crate::leader::LeaderArguments),
    /// Print ids that nobody else gets, and tell what ids say
    #[command(after_long_help = crate::id::arguments::EXAMPLES, arg_required_else_help = true)]
    Id {
        /// The kind of id, or what is asked of ids
        #[command(subcommand)]
        verb: IdVerb,
    },
    /// Examine a store, and say what is wrong with it
    #[command(after_long_help = crate::doctor::EXIT_CODES)]
    Doctor(crate::doctor::DoctorArguments),
    /// Measure how fast locks are on a store
    #[command(after_long_help = crate::bench::EXIT_CODES)]
    Bench(crate::bench::BenchArguments),
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
    ///
    /// To read it: `lockkeeper man run | man -l -`. To install all of them:
    /// `lockkeeper man --dir ~/.local/share/man/man1`.
    Man {
        /// The subcommand
        verb: Option<String>,

        /// Write all pages to this folder instead, a file each
        #[arg(long, value_name = "DIR", conflicts_with = "verb", value_hint = clap::ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

/// How to ask for a lock.
#[derive(Debug, Args)]
pub(crate) struct ClaimArguments {
    /// Hold the lock alone; it is so without this, too
    #[arg(
        id = "exclusive",
        short = 'x',
        visible_short_alias = 'e',
        long = "exclusive",
        conflicts_with_all = ["shared", "slots"]
    )]
    _exclusive: bool,

    /// Share the lock with others that share it
    #[arg(short, long, conflicts_with = "slots")]
    pub(crate) shared: bool,

    /// Let up to N hold the lock at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) slots: Option<u32>,

    /// Wait at most this long for the lock [default: for ever]
    #[arg(short, long, visible_alias = "timeout", value_name = "DUR", value_parser = lockkeeper::parse_duration, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,

    /// Do not wait at all
    #[arg(short = 'n', long, visible_aliases = ["nb", "nonblock"], conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// The exit code when the lock was not acquired
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = crate::exit::NOT_ACQUIRED)]
    pub(crate) conflict_exit_code: u8,

    #[command(flatten)]
    pub(crate) manner: Manner,
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) claim: ClaimArguments,

    /// How long others wait after lockkeeper or its machine dies; renewed while the command runs
    /// [default: 30s, or the ticket's]
    #[arg(long, value_name = "DUR", value_parser = lockkeeper::parse_duration, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,

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

    /// What it is for; shown to those who wait [default: the command and its arguments]
    ///
    /// It is stored, and everybody with access to the store can read it: so are the arguments of the
    /// command, unless a note is given or --no-command.
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,

    /// Do not store the command and its arguments for others to see
    #[arg(long, conflicts_with_all = ["note", "ticket", "ticket_file"])]
    pub(crate) no_command: bool,

    /// Run this line by `sh -c`, instead of a command and its arguments
    #[arg(short = 'c', long = "command", value_name = "LINE")]
    pub(crate) shell_line: Option<OsString>,

    /// Take over the lock with this ticket, which `lockkeeper lock` printed, instead of waiting for
    /// one: it is renewed while the command runs and given back at its end; can be repeated
    ///
    /// A ticket given here can be seen in the list of processes; in a file it cannot.
    #[arg(long, value_name = "TICKET", conflicts_with_all = NOT_WITH_TICKETS)]
    pub(crate) ticket: Vec<String>,

    /// The same with the tickets in this file, one a line; `-` is standard input
    ///
    /// Of standard input nothing is left for the command.
    #[arg(long, value_name = "FILE", conflicts_with_all = NOT_WITH_TICKETS, value_hint = clap::ValueHint::FilePath)]
    pub(crate) ticket_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// The lock; several, separated by commas, are taken all or none
    ///
    /// A comma that is part of a name is written `\,`.
    // With tickets there is none, and this is the first word of the command.
    #[arg(value_name = "NAME[,NAME…]", required_unless_present_any = TICKETS)]
    pub(crate) names: Option<OsString>,

    /// The command and its arguments; no shell in between
    #[arg(
        value_name = "CMD",
        required_unless_present_any = ["ticket", "ticket_file", "shell_line"],
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_hint = clap::ValueHint::CommandWithArguments
    )]
    pub(crate) command: Vec<OsString>,
}

/// Where the tickets of a run can stand.
const TICKETS: [&str; 2] = ["ticket", "ticket_file"];

/// What is settled for a lock that is taken over.
const NOT_WITH_TICKETS: [&str; 9] = [
    "exclusive",
    "shared",
    "slots",
    "wait",
    "no_wait",
    "conflict_exit_code",
    "max_hold",
    "min_hold",
    "note",
];

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

    /// Show a live list on the terminal, what waits longest on top: q quits, s sorts, arrows select,
    /// enter shows everyone at a lock, b breaks it
    #[arg(long, conflicts_with = "json")]
    pub(crate) watch: bool,

    /// Time between two looks of --watch
    #[arg(long, value_name = "DUR", value_parser = lockkeeper::parse_duration, default_value = "1s", allow_hyphen_values = true, requires = "watch")]
    pub(crate) every: Duration,

    /// Do not cut the table to the width of the terminal
    #[arg(long)]
    pub(crate) wide: bool,

    #[command(flatten)]
    pub(crate) manner: Manner,

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

    /// Do not cut the table to the width of the terminal
    #[arg(long)]
    pub(crate) wide: bool,

    #[command(flatten)]
    pub(crate) manner: Manner,

    #[command(flatten)]
    pub(crate) store: StoreArguments,
}

#[derive(Debug, Args)]
pub(crate) struct BreakArguments {
    /// The lock
    pub(crate) name: String,

    /// The token it is held with, as `show` prints it: a later holder is left alone
    ///
    /// Without it, the holder is shown and you are asked; that needs a terminal.
    #[arg(long, value_name = "T", requires = "reason")]
    pub(crate) token: Option<NonZeroU64>,

    /// Why; the holder is told
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) reason: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) manner: Manner,

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

    /// Do not cut the table to the width of the terminal
    #[arg(long)]
    pub(crate) wide: bool,

    #[command(flatten)]
    pub(crate) manner: Manner,

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
            assert!(asked.claim.no_wait);
            assert_eq!(asked.names.unwrap(), "x");
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
        for option in
            [&["-n"][..], &["-w", "1s"], &["-s"], &["--slots", "2"], &["--max-hold", "1s"]]
        {
            assert!(
                run(&[option, &["--ticket", "t", "--", "true"]].concat()).is_err(),
                "{option:?}"
            );
        }
        assert!(run(&["--ticket", "t", "--ttl", "1s", "--", "true"]).is_ok());
    }
}
