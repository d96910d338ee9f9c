//! Finding a claim by its name and id, and whether what was found is it.

use super::super::loss;
use super::super::protocol::{KeyValue, RangeResponse, path};
use super::super::queue;
use super::super::{record, requests};
use super::{Key, KeyRange, OwnLease};
use crate::backend::{FencingToken, LossReason};
use crate::error::Result;
use std::time::Duration;

/// How long the search for a key that is gone may keep its holder from learning of that.
const MOMENT: Duration = Duration::from_millis(50);

impl OwnLease {
    fn range(&self) -> KeyRange {
        KeyRange::new(&self.context.prefix, &self.ticket.name)
    }

    /// The revision at which the claim was created, as its token tells; `None` where there is none, and
    /// zero, which no key has, for a token of another store.
    fn created_by_token(&self) -> Option<i64> {
        let number = self.ticket.token?.get();
        let revision = i64::try_from(number / FencingToken::STEP).unwrap_or_default();
        Some(revision).filter(|_| number.is_multiple_of(FencingToken::STEP)).or(Some(0))
    }

    /// Reads the claim's key, through a majority. Where the key is not known and no token tells when it
    /// was created, the whole queue: whether the claim holds takes those before it.
    pub(super) async fn read(&self) -> Result<RangeResponse> {
        let request = match (&self.key, self.created_by_token()) {
            (Some(key), _) => requests::one(key.bytes.clone()),
            (None, Some(0)) => return Ok(RangeResponse::default()),
            (None, Some(created)) => requests::created_then(&self.range(), created),
            (None, None) => requests::whole(&self.range()),
        };
        self.context.client.call(path::RANGE, &request).await
    }

    /// The claim's key, if it is among what was found and the claim holds; why it is lost if not.
    pub(super) async fn judge(&mut self, found: &RangeResponse) -> Result<KeyValue, LossReason> {
        let seen = requests::revision_of(found.header);
        if self.key.is_none() {
            self.key = match self.find(found) {
                Some(kv) => {
                    let (bytes, created) = (kv.key.clone(), kv.create_revision);
                    Some(Key { bytes, created, seen })
                }
                None => self.where_it_was().await,
            };
        }
        let Some(key) = &mut self.key else { return Err(LossReason::Gone) };
        let here = found.kvs.iter().find(|kv| kv.key == key.bytes);
        let here = RangeResponse { kvs: here.cloned().into_iter().collect(), ..found.clone() };
        if let Some(lost) = loss::found(&self.context.client, &key.bytes, key.created, &here).await
        {
            return Err(lost);
        }
        key.seen = seen;
        let is_ours = |kv: &KeyValue| {
            let record = record::read(&kv.value);
            record.is_some_and(|it| it.id == Some(self.ticket.id) && it.mode == self.ticket.mode)
        };
        // One that was given back, and only stays, is nobody's.
        here.kvs.into_iter().next().filter(is_ours).ok_or(LossReason::Gone)
    }

    /// The claim in what was read of its name. Who has its token was granted it; without one, it has to
    /// stand where claims hold.
    fn find<'a>(&self, found: &'a RangeResponse) -> Option<&'a KeyValue> {
        let range = self.range();
        let is_it = |kv: &&KeyValue| {
            let id = record::read(&kv.value).and_then(|record| record.id);
            range.has(&kv.key) && id == Some(self.ticket.id)
        };
        let by_token = self.ticket.token.is_some();
        // One that is broken has no id any more, and says why.
        let is_broken =
            |kv: &&KeyValue| by_token && range.has(&kv.key) && record::broken(&kv.value).is_some();
        let kv = found.kvs.iter().find(is_it).or_else(|| found.kvs.iter().find(is_broken))?;
        (by_token || queue::holds(&range, &found.kvs, &kv.key)).then_some(kv)
    }

    /// Where the claim was that is not there any more, if etcd remembers: its last words are there.
    async fn where_it_was(&self) -> Option<Key> {
        let created = self.created_by_token().filter(|created| *created > 0)?;
        let mut request = requests::created_then(&self.range(), created);
        request.revision = created;
        let asked = self.context.client.call::<_, RangeResponse>(path::RANGE, &request);
        let found = tokio::time::timeout(MOMENT, asked).await.ok()?.ok()?;
        let kv = self.find(&found)?;
        Some(Key { bytes: kv.key.clone(), created, seen: created })
    }
}
