//! What can be asked for behind `lockkeeper id`.

use crate::arguments::StoreArguments;
use clap::{Args, Subcommand, ValueEnum};
use lockkeeper::id::{Digits, Layout};
use std::time::Duration;

pub(crate) const EXAMPLES: &str = "\
Examples:
  lockkeeper id snowflake
  lockkeeper id sequence --key invoices --floor 10000
  lockkeeper id dated --key orders --prefix ORD --check-digit --offset +08:00
  lockkeeper id segment -n 1000000 | gzip > ids.gz
  lockkeeper id next orders
  lockkeeper id inspect --kind snowflake 248356782071808000
  lockkeeper id range 2026-11-15 --key orders

Without --key, ids are those of a key that all callers share who ask for the same:
`default-snowflake`, or `default-snowflake-41/6/6-1735689600000` with other terms than usual.
What a key is made of is on record in the store; another kind is refused.

Exit codes:
  1   `workers`, `keys`: there are none
  64  wrong usage, a key of another kind, a store that cannot keep count
  69  the store is unreachable or unusable, or has lost its count
  77  the store refused us";

#[derive(Debug, Subcommand)]
pub(crate) enum IdVerb {
    /// UUIDs of version 4: random, in no order; no store
    Uuid4(Amount),
    /// UUIDs of version 7: by time, growing in a process; no store
    #[command(visible_alias = "uuid")]
    Uuid7(Amount),
    /// ULIDs: by time, growing in a process; no store
    Ulid(Amount),
    /// 1, 2, 3: strictly increasing for all, a request to the store for each batch
    Sequence(CountArguments),
    /// 1, 2, 3 out of reserved ranges: increasing for each process, most without a request
    Segment(CountArguments),
    /// Numbers of the database's own auto-increment column
    AutoIncrement(KeyArguments),
    /// Time, worker and sequence in 63 bits: roughly by time, with a leased worker number
    Snowflake(SnowflakeArguments),
    /// A number in which a person reads the day: 2026111507300000042
    Dated(DatedArguments),
    /// Numbers of several stores, which go on while some of them are down
    Striped(StripedArguments),
    /// Ids of the kind that the store has on record for a key
    Next(NextArguments),
    /// What an id tells: time, worker, sequence
    ///
    /// UUIDs and ULIDs are known by their form; of what kind a number is must be said.
    Inspect(InspectArguments),
    /// The first and the last id of a day: bounds for a query
    Range(RangeArguments),
    /// Who has which worker number
    Workers(WorkersArguments),
    /// The keys that the store has ids of
    Keys(KeysArguments),
    /// How many ids a second there are of each kind on this store
    ///
    /// Leaves keys in the store whose names begin with `bench-`.
    Bench(BenchArguments),
}

#[derive(Debug, Args)]
pub(crate) struct Amount {
    /// How many
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value = "1",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub(crate) number: u64,

    /// Print a JSON array of strings: JSON numbers lose their last digits in many readers
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArguments {
    /// Whose ids: those of another key know nothing of them [default: one for each kind]
    #[arg(long, value_name = "K")]
    pub(crate) key: Option<String>,

    /// Refuse a key that is not there instead of making it
    #[arg(long)]
    pub(crate) existing: bool,

    #[command(flatten)]
    pub(crate) amount: Amount,

    #[command(flatten)]
    pub(crate) store: StoreArguments,
}

#[derive(Debug, Args)]
pub(crate) struct CountArguments {
    /// No number below this: one above all that were used, for a store that lost its count
    #[arg(long, value_name = "N")]
    pub(crate) floor: Option<u64>,

    #[command(flatten)]
    pub(crate) key: KeyArguments,
}

/// The bits of snowflake ids.
#[derive(Debug, Args)]
pub(crate) struct BitArguments {
    /// Bits of time, worker and sequence [default: 41/10/12]
    #[arg(long, value_name = "T/W/S", conflicts_with = "js")]
    pub(crate) layout: Option<Layout>,

    /// 53 bits in all, which JavaScript keeps exact: 41/6/6
    #[arg(long)]
    pub(crate) js: bool,

    /// The day, or the millisecond since 1970, from which time counts [default: 2025-01-01]
    #[arg(long, value_name = "DAY")]
    pub(crate) epoch: Option<String>,
}

/// The digits of dated ids.
#[derive(Debug, Args)]
pub(crate) struct DigitArguments {
    /// second19, day16, second16 (both exact in JavaScript), or worker19, which asks the store for a
    /// worker number only [default: second19]
    #[arg(long, value_name = "D")]
    pub(crate) digits: Option<Digits>,

    /// The offset from UTC at which days and seconds are read, such as +08:00 [default: UTC]
    #[arg(long, value_name = "HH:MM", allow_hyphen_values = true)]
    pub(crate) offset: Option<String>,

    /// Letters in front
    #[arg(long, value_name = "P")]
    pub(crate) prefix: Option<String>,

    /// A digit behind, by which one wrong digit or two that changed places are noticed
    #[arg(long)]
    pub(crate) check_digit: bool,
}

#[derive(Debug, Default, Args)]
pub(crate) struct LeaseArguments {
    /// For how long ids go on while the store does not answer; on record with the key, so that another is
    /// refused. Also how long the first id of a new key takes on a server [default: what is on record; 30s for
    /// a new key, 2s without --key]
    #[arg(long, value_name = "DUR", value_parser = lockkeeper::parse_duration, allow_hyphen_values = true)]
    pub(crate) window: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct SnowflakeArguments {
    #[command(flatten)]
    pub(crate) bits: BitArguments,

    #[command(flatten)]
    pub(crate) lease: LeaseArguments,

    #[command(flatten)]
    pub(crate) key: KeyArguments,
}

#[derive(Debug, Args)]
pub(crate) struct DatedArguments {
    #[command(flatten)]
    pub(crate) digits: DigitArguments,

    #[command(flatten)]
    pub(crate) lease: LeaseArguments,

    #[command(flatten)]
    pub(crate) key: KeyArguments,
}

#[derive(Debug, Args)]
pub(crate) struct StripedArguments {
    /// One of the stores; two or more, always in the same order
    ///
    /// A password given here can be seen in the list of processes; in the variable, with blanks between
    /// the URLs, it cannot.
    // The same id as that of the global option, which it stands in for.
    #[arg(
        id = "store",
        long = "store",
        value_name = "URL",
        env = "LOCKKEEPER_STORES",
        hide_env_values = true,
        value_delimiter = ' ',
        required = true
    )]
    pub(crate) stores: Vec<String>,

    /// Whose ids [default: default-striped]
    #[arg(long, value_name = "K")]
    pub(crate) key: Option<String>,

    #[command(flatten)]
    pub(crate) amount: Amount,
}

#[derive(Debug, Args)]
pub(crate) struct NextArguments {
    /// Whose ids
    pub(crate) key: String,

    /// As for `sequence` and `segment`
    #[arg(long, value_name = "N")]
    pub(crate) floor: Option<u64>,

    #[command(flatten)]
    pub(crate) lease: LeaseArguments,

    #[command(flatten)]
    pub(crate) amount: Amount,

    #[command(flatten)]
    pub(crate) store: StoreArguments,
}

/// Of what kind an id is: by the words for it, or by the store's record.
#[derive(Debug, Args)]
pub(crate) struct OfKind {
    /// Of what kind the id is, with its options
    #[arg(long, conflicts_with = "key")]
    pub(crate) kind: Option<KindWord>,

    /// Whose it is: asks the store of what kind those are
    #[arg(long, value_name = "K")]
    pub(crate) key: Option<String>,

    #[command(flatten)]
    pub(crate) bits: BitArguments,

    #[command(flatten)]
    pub(crate) digits: DigitArguments,

    #[command(flatten)]
    pub(crate) store: StoreArguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindWord {
    Uuid4,
    #[value(alias = "uuid")]
    Uuid7,
    Ulid,
    Sequence,
    Segment,
    AutoIncrement,
    Snowflake,
    Dated,
    Striped,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArguments {
    /// The id
    pub(crate) id: String,

    #[command(flatten)]
    pub(crate) of: OfKind,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RangeArguments {
    /// The day, such as 2026-11-15: of UTC, and for dated ids of their own offset
    pub(crate) day: String,

    #[command(flatten)]
    pub(crate) of: OfKind,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WorkersArguments {
    /// Only those of this key
    #[arg(long, value_name = "K")]
    pub(crate) key: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArguments,
}

#[derive(Debug, Args)]
pub(crate) struct KeysArguments {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArguments,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// Only this kind
    pub(crate) kind: Option<KindWord>,

    /// For how long each is measured
    #[arg(long, value_name = "DUR", default_value = "500ms", value_parser = lockkeeper::parse_duration)]
    pub(crate) time: Duration,

    #[command(flatten)]
    pub(crate) store: StoreArguments,
}
