//! Ids of every kind, printed.

use super::arguments::{
    Amount, CountArguments, DatedArguments, KeyArguments, LeaseArguments, NextArguments,
    SnowflakeArguments, StripedArguments,
};
use super::lines::Lines;
use super::terms;
use crate::exit::{self, Failure};
use lockkeeper::Keeper;
use lockkeeper::id::{Digits, Generator, Id, Ids, Kind, Striped};
use std::io::Write;
use std::time::Duration;

/// How many ids are asked for at a time.
const BATCH: u64 = 1 << 15;

/// The same where each is a row of a table.
const ROWS: u64 = 1_000;

/// How long the end waits for a worker number to be given back.
const GIVE_BACK: Duration = Duration::from_secs(5);

/// Prints ids that need no store.
pub(crate) async fn without_store<G: Generator>(ids: &G, amount: &Amount) -> Result<u8, Failure> {
    // Writing to memory does not fail.
    give(ids, amount, BATCH, |id, out| drop(write!(out, "{id}"))).await?;
    Ok(exit::FINE)
}

pub(crate) async fn count(asked: &CountArguments, kind: Kind) -> Result<u8, Failure> {
    by_key(&asked.key, kind, asked.floor, &LeaseArguments::default()).await
}

pub(crate) async fn auto_increment(asked: &KeyArguments) -> Result<u8, Failure> {
    by_key(asked, Kind::AutoIncrement, None, &LeaseArguments::default()).await
}

pub(crate) async fn snowflake(asked: &SnowflakeArguments) -> Result<u8, Failure> {
    let kind = Kind::Snowflake(terms::layout(&asked.bits)?);
    by_key(&asked.key, kind, None, &asked.lease).await
}

pub(crate) async fn dated(asked: &DatedArguments) -> Result<u8, Failure> {
    let kind = Kind::Dated(terms::format(&asked.digits)?);
    by_key(&asked.key, kind, None, &asked.lease).await
}

/// Ids of a key that has this kind, or is made with it.
async fn by_key(
    asked: &KeyArguments,
    kind: Kind,
    floor: Option<u64>,
    lease: &LeaseArguments,
) -> Result<u8, Failure> {
    let key = asked.key.clone().unwrap_or_else(|| terms::default_key(&kind));
    let lease = terms::lease(lease, &kind, &key)?;
    let keeper = connect(&asked.store.url()?).await?;
    let mut key = keeper.ids(&key).lease(lease);
    if let Some(floor) = floor {
        key = key.floor(floor);
    }
    if asked.existing {
        key = key.existing();
    }
    let ids = key.of_kind(kind).await?;
    print(&keeper, ids, &asked.amount).await
}

/// Ids of whatever kind the key has.
pub(crate) async fn next(asked: &NextArguments) -> Result<u8, Failure> {
    let keeper = connect(&asked.store.url()?).await?;
    let kind = kind_of(&keeper, &asked.key).await?;
    let mut key =
        keeper.ids(&asked.key).existing().lease(terms::lease(&asked.lease, &kind, &asked.key)?);
    if let Some(floor) = asked.floor {
        if !matches!(kind, Kind::Sequence | Kind::Segment) {
            let message = format!("--floor is for sequences and segments, and these are {kind}");
            return Err(Failure::usage(message));
        }
        key = key.floor(floor);
    }
    let ids = key.of_kind(kind).await?;
    print(&keeper, ids, &asked.amount).await
}

/// What the store has on record for a key.
pub(crate) async fn kind_of(keeper: &Keeper, key: &str) -> Result<Kind, Failure> {
    let views = keeper.id_keys().await?;
    let view = views.into_iter().find(|view| view.key == key);
    view.map(|view| view.kind).ok_or_else(|| {
        Failure::usage(format!(
            "{keeper} has no ids {key:?}: `lockkeeper id keys` lists those that it has, and \
             `lockkeeper id KIND --key {key}` makes them"
        ))
    })
}

pub(crate) async fn striped(asked: &StripedArguments) -> Result<u8, Failure> {
    let key = asked.key.as_deref().unwrap_or("default-striped");
    let ids = Striped::connect(&asked.stores, key).await?;
    give(&ids, &asked.amount, BATCH, write_number).await?;
    Ok(exit::FINE)
}

/// A store that others can reach, too.
async fn connect(url: &str) -> Result<Keeper, Failure> {
    if url == "memory:" {
        return Err(Failure::usage(
            "memory: is this process's own and begins anew with each: use sqlite:, or a store with a \
             server",
        ));
    }
    crate::store::open(url).await
}

async fn print(keeper: &Keeper, ids: Ids, amount: &Amount) -> Result<u8, Failure> {
    let kind = ids.kind();
    #[cfg(unix)]
    if kind.has_workers() {
        give_back_on_signal(ids.clone())?;
    }
    let outcome = match &kind {
        Kind::Dated(_) => {
            give(&ids, amount, batch(&kind), |id, out| {
                out.extend_from_slice(ids.text(id).as_bytes());
            })
            .await
        }
        kind => give(&ids, amount, batch(kind), write_number).await,
    };
    // A number that is not given back in time is free later.
    let _ = tokio::time::timeout(GIVE_BACK, ids.close()).await;
    keeper.close(GIVE_BACK).await;
    outcome.map(|()| exit::FINE)
}

/// How many are asked for at a time: less than there are in a second, where that is a limit.
fn batch(kind: &Kind) -> u64 {
    match kind {
        Kind::AutoIncrement => ROWS,
        Kind::Dated(format) => match format.digits() {
            Digits::Second19 => 5_000,
            Digits::Second16 => 500,
            _ => BATCH,
        },
        _ => BATCH,
    }
}

fn write_number(id: Id, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(id.get()).as_bytes());
}

/// Prints as many as were asked for, or until nobody reads any more.
async fn give<G: Generator>(
    ids: &G,
    amount: &Amount,
    batch: u64,
    write: impl Fn(G::Id, &mut Vec<u8>),
) -> Result<(), Failure> {
    let mut lines = Lines::new(amount.json);
    let mut left = amount.number;
    let mut outcome = Ok(());
    while left > 0 && !lines.is_gone() {
        let count = u32::try_from(left.min(batch)).unwrap_or(u32::MAX);
        match ids.next_n(count).await {
            Ok(some) => some.into_iter().try_for_each(|id| lines.add(|out| write(id, out)))?,
            Err(error) => {
                outcome = Err(error.into());
                break;
            }
        }
        left -= u64::from(count);
    }
    lines.finish().and(outcome)
}

/// Gives the worker number back before a signal ends the process. From then on there are no ids, so that
/// it does not matter what the rest of the process does.
#[cfg(unix)]
fn give_back_on_signal(ids: Ids) -> Result<(), Failure> {
    use crate::run::signals::{Early, Signals};

    let mut signals = Signals::listen(Early::hold_back())?;
    tokio::spawn(async move {
        let signal = signals.ending().await;
        let _ = tokio::time::timeout(GIVE_BACK, ids.close()).await;
        std::process::exit(i32::from(exit::by_signal(signal as i32)));
    });
    Ok(())
}
