//! Numbers that nobody else gets.
//!
//! One key per sequence with the last number reserved. It never expires, and is not touched by any
//! lock. An answer that is lost takes its numbers with it: the command is sent again and reserves
//! others, so there may be gaps and never a number twice.
//!
//! A server that forgot the key begins again at the caller's `floor`, which should therefore be above
//! every number that is known to have been used.

use super::client::{Client, Script};
use crate::backend::Name;
use crate::error::{Error, ErrorKind, Result};
use redis::Value;

/// Counts up by its first argument, and on to its second if that is further. The numbers stay
/// text: a Lua number is exact only up to 2^53.
const RESERVE: &str = "
redis.call('INCRBY', KEYS[1], ARGV[1])
local last = redis.call('GET', KEYS[1])
if #last < #ARGV[2] or (#last == #ARGV[2] and last < ARGV[2]) then
  last = ARGV[2]
  redis.call('SET', KEYS[1], last)
end
return last";

/// The first of `count` numbers, not below `floor`. The key never expires.
///
/// `INCRBY` refuses to count past 2^63, and so does this: a sequence ends, it does not begin again.
pub(super) async fn reserve(
    client: &Client,
    prefix: &str,
    name: &Name,
    count: u32,
    floor: u64,
) -> Result<u64> {
    let key = format!("{prefix}sequence:{name}");
    let count = u64::from(count.max(1));
    let least = floor.max(1).checked_add(count - 1).filter(|last| i64::try_from(*last).is_ok());
    let Some(least) = least else {
        return Err(Error::new(ErrorKind::Config, "a sequence ends below 2^63"));
    };
    let (step, least) = (count.to_string(), least.to_string());
    let arguments = [step.as_bytes(), least.as_bytes()];
    let answer = client.call(&Script::new(RESERVE), &[&key], &arguments).await?;
    let last = match &answer {
        Value::BulkString(text) => std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()),
        _ => None,
    };
    let last: u64 = last.ok_or_else(|| {
        Error::new(ErrorKind::Store, format!("{answer:?} is no count: is {key:?} used otherwise?"))
    })?;
    Ok(last + 1 - count)
}
