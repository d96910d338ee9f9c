//! Who holds and who waits.

use super::key::{Line, end_of, name_of};
use super::place::{part, token};
use super::proto::{
    KeyValue, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, RangeResponse, TxnResponse, path,
};
use super::queue::Shared;
use super::{record, requests};
use crate::backend::{FencingToken, HolderView, LockView, Name, WaiterView};
use crate::error::Result;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

/// How many leases are looked at at once.
const AT_ONCE: usize = 32;

pub(super) async fn show(shared: &Shared, name: &Name) -> Result<LockView> {
    let line = Line::new(&shared.prefix, name);
    let kvs = keys(shared, line.start(), line.end()).await?;
    let left = times_left(shared, &kvs).await?;
    Ok(view(&line, name, &kvs, &left))
}

pub(super) async fn list(shared: &Shared, prefix: &str) -> Result<Vec<LockView>> {
    let start = format!("{}{prefix}", shared.prefix).into_bytes();
    let end = end_of(&start);
    let mut names: BTreeMap<Name, Vec<KeyValue>> = BTreeMap::new();
    for kv in keys(shared, start, end).await? {
        // What lives on no lease is no claim, whatever it is.
        let name = name_of(&shared.prefix, &kv.key).filter(|_| kv.lease != 0);
        if let Some(name) = name.filter(|name| name.as_str().starts_with(prefix)) {
            names.entry(name).or_default().push(kv);
        }
    }
    let all: Vec<KeyValue> = names.values().flatten().cloned().collect();
    let left = times_left(shared, &all).await?;
    let view = |(name, kvs): (&Name, &Vec<KeyValue>)| {
        view(&Line::new(&shared.prefix, name), name, kvs, &left)
    };
    Ok(names.iter().map(view).collect())
}

/// Takes the claim from its holder: first its key says so and why, for the holder to read, and
/// then it goes.
pub(super) async fn break_hold(
    shared: &Shared,
    name: &Name,
    wanted: FencingToken,
    reason: &str,
) -> Result<bool> {
    let line = Line::new(&shared.prefix, name);
    let kvs = keys(shared, line.start(), line.end()).await?;
    let (holders, _) = part(&line, &kvs);
    let Some(holder) = holders.iter().find(|kv| token(kv.create_revision) == Some(wanted)) else {
        return Ok(false);
    };
    let (key, created) = (&holder.key, holder.create_revision);
    let say_so = requests::rewrite(key, created, record::write_broken(reason), 0);
    let said: TxnResponse = shared.link.call(path::TXN, &say_so).await?;
    let _: TxnResponse = shared.link.call(path::TXN, &requests::delete(key, created)).await?;
    Ok(said.succeeded)
}

async fn keys(shared: &Shared, start: Vec<u8>, end: Vec<u8>) -> Result<Vec<KeyValue>> {
    let request = requests::range(start, end);
    let answer: RangeResponse = shared.link.call(path::RANGE, &request).await?;
    Ok(answer.kvs)
}

type TimesLeft = HashMap<i64, Duration>;

/// How long each lease of these keys will last without a sign of life.
async fn times_left(shared: &Shared, kvs: &[KeyValue]) -> Result<TimesLeft> {
    let leases: HashSet<i64> = kvs.iter().map(|kv| kv.lease).filter(|id| *id != 0).collect();
    let ask = |id: i64| async move {
        let request = LeaseTimeToLiveRequest { id };
        let answer: LeaseTimeToLiveResponse =
            shared.link.call(path::LEASE_TIME_TO_LIVE, &request).await?;
        Ok((id, Duration::from_secs(u64::try_from(answer.ttl).unwrap_or(0))))
    };
    stream::iter(leases).map(ask).buffer_unordered(AT_ONCE).try_collect().await
}

/// When a claim came to hold is written nowhere; what is told is since when it was asked for.
fn view(line: &Line, name: &Name, kvs: &[KeyValue], left: &TimesLeft) -> LockView {
    let (holders, waiting) = part(line, kvs);
    let holders = holders.iter().map(|kv| {
        let record = record::read_any(&kv.key, &kv.value);
        let held_for = record.age();
        HolderView {
            owner: record.owner,
            identity: record.identity,
            note: record.note,
            mode: record.mode,
            token: token(kv.create_revision),
            count: 1,
            held_for,
            expires_in: left.get(&kv.lease).copied().unwrap_or_default(),
        }
    });
    let waiters = waiting.iter().map(|kv| {
        let record = record::read_any(&kv.key, &kv.value);
        let waiting_for = record.age();
        WaiterView {
            owner: record.owner,
            identity: record.identity,
            note: record.note,
            mode: record.mode,
            waiting_for,
        }
    });
    LockView { name: name.clone(), holders: holders.collect(), waiters: waiters.collect() }
}
