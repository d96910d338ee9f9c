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
    KeyValue, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, RangeRequest, RangeResponse,
    TxnResponse, path,
};
use super::{record, requests, session};
use crate::backend::support::list::{asked, no_page};
use crate::backend::{FencingToken, HolderView, LockView, Name, Page, WaiterView, queue};
use crate::error::Result;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

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
        let kvs = self.read(first, end).await?;
        self.views(&self.by_name(start, kvs)).await
    }

    /// Some of them, in the order of their keys: `after` is the last key of the page before. A name is on
    /// the page that has the first of its keys, with all its claims.
    pub(super) async fn list_page(
        self,
        start: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page> {
        let (first, end) = keys_beginning(format!("{}{start}", self.prefix).as_bytes());
        let after = after.map(|after| key_of(after).filter(|key| *key >= first));
        let after = after.map(|key| key.ok_or_else(no_page)).transpose()?;
        let from = after.clone().map_or(first, behind);
        let kvs = self.read_some(from, end, limit).await?;
        let last = kvs.last().filter(|_| kvs.len() >= limit).map(|kv| kv.key.clone());
        let mut names = self.by_name(start, kvs);
        // Keys of one name need not be side by side: those of a longer name are between them.
        let cut =
            |range: &KeyRange| after.iter().chain(&last).any(|key| key.starts_with(&range.start()));
        let cut: Vec<_> =
            names.keys().filter(|name| cut(&KeyRange::new(self.prefix, name))).cloned().collect();
        for name in cut {
            let claims = self.claims(&KeyRange::new(self.prefix, &name), limit).await?;
            let is_new =
                claims.first().is_some_and(|kv| after.as_ref().is_none_or(|after| kv.key > *after));
            if is_new {
                names.insert(name, claims)
            } else {
                names.remove(&name)
            };
        }
        Ok(Page::new(self.views(&names).await?, last.map(|key| text_of(&key))))
    }

    /// The claims among the keys, by name.
    fn by_name(self, start: &str, kvs: Vec<KeyValue>) -> BTreeMap<Name, Vec<KeyValue>> {
        let mut names: BTreeMap<Name, Vec<KeyValue>> = BTreeMap::new();
        for kv in kvs {
            // What lives on no lease is no claim, whatever it is.
            let name = name_of(self.prefix, &kv.key).filter(|_| kv.lease != 0);
            if let Some(name) = name.filter(|name| name.as_str().starts_with(start)) {
                names.entry(name).or_default().push(kv);
            }
        }
        names
    }

    async fn views(self, names: &BTreeMap<Name, Vec<KeyValue>>) -> Result<Vec<LockView>> {
        let left = self.times_left(names.values().flatten()).await?;
        let view = |(name, kvs): (&Name, &Vec<KeyValue>)| {
            view(&KeyRange::new(self.prefix, name), name, kvs, &left)
        };
        Ok(names.iter().map(view).collect())
    }

    /// The claims on one name, in the order of their keys, `limit` keys at a time: those of longer names
    /// may be many.
    async fn claims(self, range: &KeyRange, limit: usize) -> Result<Vec<KeyValue>> {
        let (mut claims, mut from) = (Vec::new(), range.start());
        loop {
            let kvs = self.read_some(from, range.end(), limit).await?;
            let next = kvs.last().filter(|_| kvs.len() >= limit).map(|kv| behind(kv.key.clone()));
            claims.extend(kvs.into_iter().filter(|kv| range.has(&kv.key) && kv.lease != 0));
            match next {
                Some(next) => from = next,
                None => return Ok(claims),
            }
        }
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

    /// The first `limit` keys of a range, in order.
    async fn read_some(self, start: Vec<u8>, end: Vec<u8>, limit: usize) -> Result<Vec<KeyValue>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let request = RangeRequest { limit, ..requests::range(start, end) };
        let answer: RangeResponse = self.client.call(path::RANGE, &request).await?;
        Ok(answer.kvs)
    }

    /// How long each server lease of these keys will last without a heartbeat. One request for each
    /// lease and not for each key: all claims of a keeper share one.
    async fn times_left<'a>(
        self,
        kvs: impl IntoIterator<Item = &'a KeyValue> + Send,
    ) -> Result<TimesLeft> {
        let leases = kvs.into_iter().map(|kv| kv.lease).filter(|id| *id != 0);
        let leases: HashSet<i64> = leases.collect();
        let ask = |id: i64| async move {
            let request = LeaseTimeToLiveRequest { id };
            let answer: LeaseTimeToLiveResponse =
                self.client.call(path::LEASE_TIME_TO_LIVE, &request).await?;
            Ok((id, Duration::from_secs(u64::try_from(answer.ttl).unwrap_or(0))))
        };
        Ok(asked(leases, ask).await?.into_iter().collect())
    }
}

/// The first key that is behind this one.
fn behind(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

/// A key as text, whatever is in it: other programs' need not be UTF-8.
fn text_of(key: &[u8]) -> String {
    let digits = key.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
}

/// The key that was written so.
fn key_of(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text.chars().map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    let (bytes, []) = digits.as_chunks::<2>() else { return None };
    bytes.iter().map(|[high, low]| u8::try_from(high * 16 + low).ok()).collect()
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
