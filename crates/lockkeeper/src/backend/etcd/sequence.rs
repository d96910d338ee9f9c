//! Numbers that nobody else gets, and small records: a key for each, on no lease.
//!
//! A key is read, what is to be written is decided here, and it is written if the key still says the
//! same. Whatever is written has a nonce in front: so no two writes are the same, and a write that
//! was sent twice, because a member did not answer, is known again by what the key says afterwards.
//!
//! ```text
//! 5f0c…⏎1042        the last number of a sequence
//! 81aa…⏎host-7      a record, and what it says
//! ```
//!
//! Numbers of which it is not known whether they were written are given to nobody: there may be gaps,
//! and never a number twice. A write carried out late, by a member that was stuck, finds another value
//! than it expects, or is such a gap.

use super::client::{Answered, Client};
use super::keys::{keys_beginning, record_key, record_of, sequence_key};
use super::protocol::{KeyValue, RangeResponse, TxnResponse, path};
use super::requests;
use crate::backend::support::contended::{Gates, TRIES, nonce, pause, restless};
use crate::backend::{Name, Reserve, Reserved, check_record};
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;

/// The sequences and records below one prefix.
#[derive(Debug)]
pub(super) struct Numbers {
    client: Arc<Client>,
    prefix: String,
    gates: Gates,
}

/// What became of a write.
enum Written {
    Yes,
    /// The key says something else, or nothing.
    No,
    /// Sent twice, and the key says something else: the first may have been carried out, and others
    /// have written since.
    Unknown,
}

impl Numbers {
    pub(super) fn new(client: Arc<Client>, prefix: &str) -> Self {
        Self { client, prefix: prefix.to_owned(), gates: Gates::default() }
    }

    /// As [`Sequencer::reserve`](crate::backend::Sequencer::reserve).
    pub(super) async fn reserve(&self, name: &Name, wish: &Reserve) -> Result<Reserved> {
        let key = sequence_key(&self.prefix, name.as_str());
        let _gate = self.gates.enter(name.as_str()).await;
        for tries in 0..TRIES {
            // Read anew behind each pause. What the refused write showed is as old as the pause is
            // long: beside others that reserve without a break, such a write would never fit.
            let found = self.get(&key).await?;
            let last = found.as_ref().map(|kv| count(kv).ok_or_else(|| foreign(kv))).transpose()?;
            let reserved = Reserved::of(last, wish);
            let Reserved::From(first) = reserved else { return Ok(reserved) };
            let last = (first + u64::from(wish.count.max(1)) - 1).to_string();
            match self.put(&key, &last, found.as_ref()).await? {
                Written::Yes => return Ok(reserved),
                // If it was written, these numbers are nobody's.
                Written::No | Written::Unknown => pause(tries).await,
            }
        }
        Err(restless(name.as_str()))
    }

    pub(super) async fn read(&self, name: &Name) -> Result<Option<String>> {
        let found = self.get(&record_key(&self.prefix, name.as_str())).await?;
        found.map(|kv| text(&kv).map(str::to_owned).ok_or_else(|| foreign(&kv))).transpose()
    }

    /// As [`Sequencer::write`](crate::backend::Sequencer::write).
    pub(super) async fn write(
        &self,
        name: &Name,
        value: &str,
        expected: Option<&str>,
    ) -> Result<bool> {
        check_record(value)?;
        let key = record_key(&self.prefix, name.as_str());
        for tries in 0..TRIES {
            let found = self.get(&key).await?;
            let says = found.as_ref().map(|kv| text(kv).ok_or_else(|| foreign(kv))).transpose()?;
            if says != expected {
                return Ok(false);
            }
            match self.put(&key, value, found.as_ref()).await? {
                Written::Yes => return Ok(true),
                // Written by another meanwhile, who may have written the same: look again.
                Written::No => pause(tries).await,
                Written::Unknown => {
                    return Err(Error::new(
                        ErrorKind::Unavailable,
                        format!(
                            "{} did not say whether it wrote the record {:?}: read what it says \
                             now",
                            self.client.shown(),
                            name.as_str()
                        ),
                    ));
                }
            }
        }
        Err(restless(name.as_str()))
    }

    /// All records whose names begin with `prefix`, as of one moment.
    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<(Name, String)>> {
        let (first, end) = keys_beginning(&record_key(&self.prefix, prefix));
        let answer: RangeResponse =
            self.client.call(path::RANGE, &requests::range(first, end)).await?;
        let named = answer.kvs.iter().filter_map(|kv| {
            // A key that this library would not write is another program's.
            Some((record_of(&self.prefix, &kv.key)?, text(kv)?.to_owned()))
        });
        let mut records: Vec<(Name, String)> = named.collect();
        records.sort();
        Ok(records)
    }

    async fn get(&self, key: &[u8]) -> Result<Option<KeyValue>> {
        let read: RangeResponse =
            self.client.call(path::RANGE, &requests::one(key.to_vec())).await?;
        Ok(requests::first_of(Some(read)))
    }

    /// Writes `says` where the key is as it was found.
    ///
    /// # Errors
    /// What the store said. Then it is not known whether it was written.
    async fn put(&self, key: &[u8], says: &str, found: Option<&KeyValue>) -> Result<Written> {
        let value = format!("{}\n{says}", nonce()?).into_bytes();
        let expected = found.map(|kv| &kv.value[..]);
        let request = requests::write_if(key, value.clone(), expected);
        let answered = self.client.try_call::<_, TxnResponse>(path::TXN, &request).await;
        let Answered { answer, sent_twice, .. } =
            answered.map_err(|failure| failure.explain(self.client.shown()))?;
        if answer.succeeded {
            return Ok(Written::Yes);
        }
        let now = requests::first_of(requests::reads(answer.responses).next());
        Ok(match now.as_ref().is_some_and(|kv| kv.value == value) {
            true => Written::Yes,
            false if sent_twice => Written::Unknown,
            false => Written::No,
        })
    }
}

/// What a key says behind its nonce.
fn text(kv: &KeyValue) -> Option<&str> {
    Some(std::str::from_utf8(&kv.value).ok()?.split_once('\n')?.1)
}

/// The number that a key says.
fn count(kv: &KeyValue) -> Option<u64> {
    text(kv)?.parse().ok()
}

/// The error for a key that we did not write.
fn foreign(kv: &KeyValue) -> Error {
    let key = String::from_utf8_lossy(&kv.key).into_owned();
    Error::new(ErrorKind::Store, format!("{key:?} is not ours: is the key used otherwise?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(value: &[u8]) -> KeyValue {
        KeyValue { value: value.to_vec(), ..KeyValue::default() }
    }

    /// In users' stores: it must not change.
    #[test]
    fn what_is_written_is_pinned() {
        assert_eq!(count(&kv(b"5f0c\n1042")), Some(1042));
        assert_eq!(text(&kv(b"81aa\nhost-7")), Some("host-7"));
        assert_eq!(text(&kv(b"81aa\n")), Some(""));
        assert_eq!(text(&kv(b"host-7")), None);
        assert_eq!(count(&kv(b"5f0c\n-1")), None);
    }
}
