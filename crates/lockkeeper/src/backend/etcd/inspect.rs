//! Who holds and who waits, and taking a claim from its holder.
//!
//! One range read returns the whole queue of a name, or of all names; what the leases of its keys
//! have left takes a request for each lease. Both are read at different moments, so a view may show
//! a claim whose lease has just ended: with no time left.
//!
//! Which claims hold is decided by the same function that grants them, so a view and a grant cannot
//! disagree about the same keys.

use super::client::Client;
use super::keys::{KeyRange, keys_beginning, name_of};
use super::protocol::{
    KeyValue, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, RangeResponse, TxnResponse, path,
};
use super::{record, requests, session};
use crate::backend::{FencingToken, HolderView, LockView, Name, WaiterView, queue};
use crate::error::Result;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

/// How many server leases are looked at at once: enough to hide the way to etcd, and no burst.
const AT_ONCE: usize = 32;

/// Looks at etcd for one keeper.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inspection<'a> {
    pub(super) client: &'a Client,
    /// What our keys begin with.
    pub(super) prefix: &'a str,
}

impl Inspection<'_> {
    /// The queue of one name, in order. A name that nobody asked for is an empty view, not an
    /// error.
    pub(super) async fn show(self, name: &Name) -> Result<LockView> {
        let range = KeyRange::new(self.prefix, name);
        let kvs = self.read(range.start(), range.end()).await?;
        let left = self.times_left(&kvs).await?;
        Ok(view(&range, name, &kvs, &left))
    }

    /// Every name that begins with `start`. Only names with claims are found: etcd keeps nothing of
    /// a name whose keys are gone.
    pub(super) async fn list(self, start: &str) -> Result<Vec<LockView>> {
        let (first, end) = keys_beginning(format!("{}{start}", self.prefix).as_bytes());
        let mut names: BTreeMap<Name, Vec<KeyValue>> = BTreeMap::new();
        for kv in self.read(first, end).await? {
            // What lives on no lease is no claim, whatever it is.
            let name = name_of(self.prefix, &kv.key).filter(|_| kv.lease != 0);
            if let Some(name) = name.filter(|name| name.as_str().starts_with(start)) {
                names.entry(name).or_default().push(kv);
            }
        }
        let all: Vec<KeyValue> = names.values().flatten().cloned().collect();
        let left = self.times_left(&all).await?;
        let view = |(name, kvs): (&Name, &Vec<KeyValue>)| {
            view(&KeyRange::new(self.prefix, name), name, kvs, &left)
        };
        Ok(names.iter().map(view).collect())
    }

    /// Takes the claim from its holder: first its key says so and why, for the holder to read, and
    /// then it goes. Two steps, because a deletion cannot say why; both name the create revision,
    /// so a successor is never hit. After a crash in between the key says that it is broken and
    /// still keeps others out, until its holder, which is told, has stopped and released it.
    ///
    /// Only a claim that holds is broken; waiting claims have shown their token to nobody.
    pub(super) async fn break_hold(
        self,
        name: &Name,
        wanted: FencingToken,
        reason: &str,
    ) -> Result<bool> {
        let range = KeyRange::new(self.prefix, name);
        let kvs = self.read(range.start(), range.end()).await?;
        let (holders, _) = part(&range, &kvs);
        let is_wanted = |kv: &&&KeyValue| token(kv) == Some(wanted);
        let Some(holder) = holders.iter().find(is_wanted) else { return Ok(false) };
        let (key, created) = (&holder.key, holder.create_revision);
        let say_so = requests::rewrite(key, created, record::write_broken(reason), 0);
        let said: TxnResponse = self.client.call(path::TXN, &say_so).await?;
        let request = requests::delete(key, created);
        let deleted: TxnResponse = self.client.call(path::TXN, &request).await?;
        let own = record::read(&holder.value).and_then(|record| record.length).is_some();
        if deleted.succeeded && own {
            // Nothing lives on it any more; without an answer it ends by itself.
            let _ = session::revoke(self.client, holder.lease).await;
        }
        Ok(said.succeeded)
    }

    /// All keys of a range, as they are at one revision.
    async fn read(self, start: Vec<u8>, end: Vec<u8>) -> Result<Vec<KeyValue>> {
        let request = requests::range(start, end);
        let answer: RangeResponse = self.client.call(path::RANGE, &request).await?;
        Ok(answer.kvs)
    }

    /// How long each server lease of these keys will last without a heartbeat. One request for each
    /// lease and not for each key: all claims of a keeper share one.
    async fn times_left(self, kvs: &[KeyValue]) -> Result<TimesLeft> {
        let leases: HashSet<i64> = kvs.iter().map(|kv| kv.lease).filter(|id| *id != 0).collect();
        let ask = |id: i64| async move {
            let request = LeaseTimeToLiveRequest { id };
            let answer: LeaseTimeToLiveResponse =
                self.client.call(path::LEASE_TIME_TO_LIVE, &request).await?;
            Ok((id, Duration::from_secs(u64::try_from(answer.ttl).unwrap_or(0))))
        };
        stream::iter(leases).map(ask).buffer_unordered(AT_ONCE).try_collect().await
    }
}

/// By the id of the server lease; one that is gone has none left.
type TimesLeft = HashMap<i64, Duration>;

/// Parts the claims on a name, in order, into those that hold and those that wait. `kvs` must be
/// all of them: holding depends on every claim before.
fn part<'a>(range: &KeyRange, kvs: &'a [KeyValue]) -> (Vec<&'a KeyValue>, Vec<&'a KeyValue>) {
    let (mut claims, modes) = record::in_order(range, kvs);
    let waiting = claims.split_off(queue::holders(modes));
    (claims, waiting)
}

/// The token of the claim that has this key: no client has to write it down.
fn token(kv: &KeyValue) -> Option<FencingToken> {
    FencingToken::from_revision(kv.create_revision)
}

/// The view of one name. When a claim came to hold is written nowhere; `held_for` is since when it
/// was asked for.
fn view(range: &KeyRange, name: &Name, kvs: &[KeyValue], left: &TimesLeft) -> LockView {
    let (holders, waiting) = part(range, kvs);
    let holders = holders.iter().map(|kv| {
        let record = record::read_any(&kv.key, &kv.value);
        let held_for = record.age();
        HolderView {
            owner: record.owner,
            identity: record.identity,
            note: record.note,
            mode: record.mode,
            token: token(kv),
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
    let (holders, waiters) = (holders.collect(), waiters.collect());
    LockView { holders, waiters, ..LockView::new(name.clone()) }
}
