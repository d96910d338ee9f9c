//! What can be asked of tickets.

use crate::arguments::{ClaimArguments, StoreArguments};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const LOCK_EXIT_CODES: &str = "\
Exit codes:
  64  wrong usage, or a store that has no tickets (see `lockkeeper recipes`: portable)
  69  the store is unreachable or unusable
  74  the ticket could not be printed, and the lock was given back
  75  the lock was not acquired (another code with -E)
  77  the store refused us
  79  the lock was lost before its ticket could be printed

Examples:
  lockkeeper lock deploy/web --ttl 30m -w 10m > deploy.ticket
  lockkeeper keep --ticket-file deploy.ticket --for 1h
  lockkeeper run --ticket-file deploy.ticket -- ./deploy.sh
  lockkeeper unlock --ticket-file deploy.ticket";

pub(crate) const EXIT_CODES: &str = "\
Each ticket is tried, also after one that is no longer good.

Exit codes:
  64  wrong usage, something that is no ticket, or a store that has none
  69  the store is unreachable or unusable: repeat it
  77  the store refused us
  79  a ticket is no longer good: its lock ran out, was given back or broken, or is in another store";

#[derive(Debug, Args)]
pub(crate) struct LockArguments {
    #[command(flatten)]
    pub(crate) claim: ClaimArguments,

    /// How long it stays locked, unless it is kept or given back earlier; at most 24h
    // Without a default: nobody renews it, so it must cover what is to come, and only the caller
    // knows that.
    #[arg(long, value_name = "DUR", value_parser = lockkeeper::parse_duration, allow_hyphen_values = true)]
    pub(crate) ttl: Duration,

    /// What it is for; stored, and shown to everybody with access to the store
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) note: String,

    /// Who holds it; shown to those who wait [default: you and this process]
    #[arg(long, value_name = "WHO")]
    pub(crate) on_behalf_of: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArguments,

    /// The lock; several are taken all or none, and have a ticket each, in the order of their names
    ///
    /// A comma separates names, too; one that is part of a name is written `\,`.
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
}

/// Which tickets.
#[derive(Debug, Args)]
pub(crate) struct TicketArguments {
    /// The tickets that `lockkeeper lock` printed; `-` is standard input, one a line
    ///
    /// A ticket given here can be seen in the list of processes; in a file it cannot.
    #[arg(value_name = "TICKET", required_unless_present = "ticket_file")]
    pub(crate) tickets: Vec<String>,

    /// The file that they are in, one a line; `-` is standard input
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) ticket_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct KeepArguments {
    /// How long from now on, this once [default: as the lock was taken for]
    ///
    /// Never shorter than it is valid already: whoever else has the ticket may count on that.
    #[arg(long = "for", value_name = "DUR", value_parser = lockkeeper::parse_duration, allow_hyphen_values = true)]
    pub(crate) span: Option<Duration>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) tickets: TicketArguments,

    #[command(flatten)]
    pub(crate) store: StoreArguments,
}

#[derive(Debug, Args)]
pub(crate) struct UnlockArguments {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) tickets: TicketArguments,

    #[command(flatten)]
    pub(crate) store: StoreArguments,
}
