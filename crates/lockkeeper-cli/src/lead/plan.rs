//! What `lead` is asked for, checked before anything is touched.

use crate::arguments::{OnLost, StoreArguments};
use crate::claim::terms::Terms;
use crate::exit::{self, Failure};
use crate::globals::Manner;
use crate::run::plan::{LONGEST_NOTE, Locks, Plan, USUAL_GRACE, USUAL_TTL, refuse_short_ttl};
use crate::text;
use clap::Args;
use lockkeeper::{Mode, Name};
use std::ffi::OsString;
use std::time::Duration;

pub(crate) const EXIT_CODES: &str = "\
After the command has ended by itself, lockkeeper ends with its exit code, and the next candidate
leads. With --restart it gives others their turn, and campaigns again after a pause: a second at
first, doubled each time up to a minute, and a second again after a term of a minute or more.
After a loss it campaigns again in either case. SIGTERM, SIGINT and the other signals reach the
command; when it has ended after one of those two or SIGQUIT, there is no next campaign.

Exit codes:
  the command's own, or 128+n when signal n ended it
  64   wrong usage
  69   the store is unreachable or unusable
  77   the store refused us
  79   the command ended by itself, but the lead had been lost before that
  126  the command cannot be executed
  127  the command was not found

The command's environment:
  LOCKKEEPER_NAME   the name
  LOCKKEEPER_TOKEN  the term: larger than that of every leader before
  LOCKKEEPER_STORE  the store

Examples:
  lockkeeper lead scheduler --note http://10.0.0.1:8080 -- ./scheduler
  lockkeeper lead --restart mailer -- ./mailer --queue outgoing
  lockkeeper leader scheduler";

#[derive(Debug, Args)]
pub(crate) struct LeadArguments {
    /// What `lockkeeper leader` and others see of this candidate, such as an address
    /// [default: the command]
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,

    /// How long others wait after lockkeeper or its machine dies; renewed while the command runs
    /// [default: 30s]
    #[arg(long, value_name = "DUR", value_parser = lockkeeper::parse_duration, allow_hyphen_values = true)]
    ttl: Option<Duration>,

    /// Time between SIGTERM and SIGKILL when the lead is lost, at most a third of the ttl
    /// [default: 5s]
    #[arg(long, value_name = "DUR", value_parser = lockkeeper::parse_duration, allow_hyphen_values = true)]
    grace: Option<Duration>,

    /// Campaign again after the command has ended, too
    #[arg(long)]
    restart: bool,

    #[command(flatten)]
    manner: Manner,

    #[command(flatten)]
    store: StoreArguments,

    /// The election
    name: String,

    /// The command and its arguments; no shell in between
    #[arg(
        value_name = "CMD",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_hint = clap::ValueHint::CommandWithArguments
    )]
    command: Vec<OsString>,
}

pub(crate) struct LeadPlan {
    /// How the command is run.
    pub(crate) run: Plan,
    /// What is campaigned for.
    pub(crate) terms: Terms,
    pub(crate) restart: bool,
}

impl LeadPlan {
    pub(crate) fn new(asked: &LeadArguments) -> Result<Self, Failure> {
        refuse_option_as_command(&asked.command)?;
        let name = Name::new(&asked.name)?;
        let ttl = asked.ttl.unwrap_or(USUAL_TTL);
        refuse_short_ttl(ttl)?;
        let config = asked.store.config()?;
        let note = match &asked.note {
            Some(note) => note.clone(),
            None if !config.shows_command() => String::new(),
            None => text::shortened(&text::command_line(&asked.command), LONGEST_NOTE),
        };
        let terms = Terms {
            names: vec![name],
            mode: Mode::Exclusive,
            wait: None,
            ttl,
            max_hold: None,
            min_hold: None,
            conflict_code: exit::NOT_ACQUIRED,
            // A candidate is nobody else, also within a run.
            owner: None,
            note,
            identity: None,
            manner: asked.manner,
        };
        let run = Plan {
            store: asked.store.find(&config)?,
            // Taken by `terms`, each time anew.
            locks: Locks::Ticketed(Vec::new()),
            ttl,
            grace: asked.grace.unwrap_or(USUAL_GRACE).min(ttl / 3),
            on_lost: OnLost::Kill,
            manner: asked.manner,
            command: asked.command.clone(),
        };
        Ok(Self { run, terms, restart: asked.restart })
    }
}

/// `lead NAME --restrat cmd` would look for a program called `--restrat`.
fn refuse_option_as_command(command: &[OsString]) -> Result<(), Failure> {
    match command.first().and_then(|word| word.to_str()) {
        Some(word) if word.starts_with('-') => Err(Failure::usage(format!(
            "{word:?} stands where the command should: see `lockkeeper lead --help` for the options there are"
        ))),
        _ => Ok(()),
    }
}
