//! Numbers that nobody else gets, and small records.
//!
//! ```text
//! lockkeeper:sequence:invoices   the last number reserved of the sequence invoices
//! lockkeeper:records             a hash: a field for each record, its name and what it says
//! ```
//!
//! Neither expires, nor is touched by any lock. The records are in one hash, so that they are listed
//! without a scan of all keys, on whichever node of a cluster that hash is.
//!
//! An answer to `reserve` that is lost takes its numbers with it: the script is sent again and
//! reserves others, so there may be gaps and never a number twice. A `write` whose answer was lost is
//! not made again: it would find its own value in the place of the expected one.
//!
//! A server that forgot the key begins again at the caller's floor, which should therefore be above
//! every number that is known to have been used; or says that there is no such sequence, if it was to
//! be there.

use super::client::{Client, Script};
use super::error::unexpected;
use super::rights::Wanted;
use crate::backend::{LAST_NUMBER, Name, Reserve, Reserved, check_record};
use crate::error::{Error, ErrorKind, Result};
use redis::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How many numbers; what the last of them is at least, or nothing where no number fits; the highest
/// count that leaves room for them; and whether there must be a count. All of them are text, and stay
/// that: a Lua number is exact only up to 2^53.
const RESERVE: &str = "
local function is_less(one, other)
  return #one < #other or (#one == #other and one < other)
end
local last = redis.call('GET', KEYS[1])
if not last and ARGV[4] == '1' then return {'missing'} end
if ARGV[2] == '' or is_less(ARGV[3], last or '0') then return {'beyond', last or '0'} end
redis.call('INCRBY', KEYS[1], ARGV[1])
last = redis.call('GET', KEYS[1])
if is_less(last, ARGV[2]) then
  last = ARGV[2]
  redis.call('SET', KEYS[1], last)
end
return {'up to', last}";

/// The name, what it is to say, whether it must be there, what it must say, and whether this may have
/// been run before.
const WRITE: &str = "
if ARGV[5] == '1' then return -1 end
local found = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[3] == '1' then
  if found ~= ARGV[4] then return 0 end
elseif found then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1";

/// The sequences and records below one prefix.
#[derive(Debug)]
pub(super) struct Numbers {
    prefix: String,
    reserve: Script,
    write: Script,
}

impl Numbers {
    pub(super) fn new(prefix: &str) -> Self {
        let (reserve, write) = (Script::new(RESERVE), Script::new(WRITE));
        Self { prefix: prefix.to_owned(), reserve, write }
    }

    /// The key with the count of a sequence.
    fn sequence(&self, name: &str) -> String {
        format!("{}sequence:{name}", self.prefix)
    }

    /// The hash with all records.
    fn records(&self) -> String {
        format!("{}records", self.prefix)
    }

    /// What the user should be let do, besides what locks need.
    pub(super) fn wanted(wanted: Wanted, prefix: &str) -> Wanted {
        let numbers = Self::new(prefix);
        let (sequence, records) = (numbers.sequence("0"), numbers.records());
        wanted
            .likes(&["incrby", &sequence, "1"], "numbers cannot be reserved")
            .likes(&["hset", &records, "0", "0"], "records cannot be written")
            .likes(&["hget", &records, "0"], "records cannot be read")
            .likes(&["hgetall", &records], "records cannot be listed")
    }

    /// As [`Sequencer::reserve`](crate::backend::Sequencer::reserve). Where replicas are asked for,
    /// the numbers count once those have them.
    pub(super) async fn reserve(
        &self,
        client: &Client,
        name: &Name,
        wish: &Reserve,
    ) -> Result<Reserved> {
        let key = self.sequence(name.as_str());
        let count = u64::from(wish.count.max(1));
        let room = wish.ceiling.min(LAST_NUMBER).saturating_sub(count).to_string();
        let least = wish.least().map(|least| least.to_string()).unwrap_or_default();
        let (step, existing) = (count.to_string(), flag(wish.existing));
        let arguments = [step.as_bytes(), least.as_bytes(), room.as_bytes(), existing];
        let answer = client.call_safely(&self.reserve, &[&key], &arguments, &arguments).await?;
        let foreign = || {
            let message = format!("{answer:?} is no count: is {key:?} used otherwise?");
            Error::new(ErrorKind::Store, message)
        };
        let words: Vec<String> = redis::from_redis_value_ref(&answer).map_err(|_| foreign())?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let number = |text: &str| text.parse::<u64>().map_err(|_| foreign());
        match words[..] {
            ["missing"] => Ok(Reserved::Missing),
            ["beyond", last] => Ok(Reserved::Beyond(number(last)?)),
            ["up to", last] => {
                let first = number(last)?.checked_sub(count - 1).ok_or_else(foreign)?;
                Ok(Reserved::From(first))
            }
            _ => Err(foreign()),
        }
    }

    pub(super) async fn read(&self, client: &Client, name: &Name) -> Result<Option<String>> {
        let key = self.records();
        let mut read = redis::cmd("HGET");
        read.arg(&key).arg(name.as_str());
        let answer = client.command(Some(&key), &read).await?;
        redis::from_redis_value_ref(&answer).map_err(|_| unexpected(&answer).with("key", key))
    }

    /// As [`Sequencer::write`](crate::backend::Sequencer::write).
    pub(super) async fn write(
        &self,
        client: &Client,
        name: &Name,
        value: &str,
        expected: Option<&str>,
    ) -> Result<bool> {
        check_record(value)?;
        let key = self.records();
        let arguments = |again: bool| {
            [
                name.as_str().as_bytes(),
                value.as_bytes(),
                flag(expected.is_some()),
                expected.unwrap_or_default().as_bytes(),
                flag(again),
            ]
        };
        let (first, again) = (arguments(false), arguments(true));
        let answer = client.call_safely(&self.write, &[&key], &first, &again).await?;
        match answer {
            Value::Int(written @ (0 | 1)) => Ok(written == 1),
            Value::Int(-1) => Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "the connection to {} broke while the record {:?} was written: read what it \
                     says now",
                    client.connector.shown(),
                    name.as_str()
                ),
            )),
            other => Err(unexpected(&other).with("key", key)),
        }
    }

    pub(super) async fn list(&self, client: &Client, prefix: &str) -> Result<Vec<(Name, String)>> {
        let key = self.records();
        let mut all = redis::cmd("HGETALL");
        all.arg(&key);
        let answer = client.command(Some(&key), &all).await?;
        let all: Vec<(String, String)> = redis::from_redis_value_ref(&answer)
            .map_err(|_| unexpected(&answer).with("key", key))?;
        let of_prefix = all.into_iter().filter(|(name, _)| name.starts_with(prefix));
        // A name that this library would not accept was written by another program.
        let named = of_prefix.filter_map(|(name, value)| Some((Name::new(&name).ok()?, value)));
        let mut records: Vec<(Name, String)> = named.collect();
        records.sort();
        Ok(records)
    }

    /// What the node that has the records says the time is: in a cluster always the same one, as long
    /// as the cluster leaves the records there.
    pub(super) async fn time(&self, client: &Client) -> Result<Option<SystemTime>> {
        let answer = client.command(Some(&self.records()), &redis::cmd("TIME")).await?;
        let (seconds, micros): (u64, u64) =
            redis::from_redis_value_ref(&answer).map_err(|_| unexpected(&answer))?;
        let since = Duration::from_secs(seconds).checked_add(Duration::from_micros(micros));
        Ok(since.and_then(|since| UNIX_EPOCH.checked_add(since)))
    }
}

/// Yes or no, for a script.
fn flag(set: bool) -> &'static [u8] {
    if set { b"1" } else { b"0" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In users' databases: it must not change.
    #[test]
    fn the_layout_is_pinned() {
        let numbers = Numbers::new("lockkeeper:");
        assert_eq!(numbers.sequence("orders/42"), "lockkeeper:sequence:orders/42");
        assert_eq!(numbers.records(), "lockkeeper:records");
    }
}
