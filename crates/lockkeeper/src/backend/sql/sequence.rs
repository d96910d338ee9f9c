//! Numbers that nobody else gets: a row per sequence, with the last number reserved.
//!
//! The row is never cleaned away. An answer that is lost takes its numbers with it: the statement
//! is sent again and reserves others, so there may be gaps and never a number twice.

use super::context::Context;
use crate::backend::Name;
use crate::error::{Error, ErrorKind, Result};

/// The first of `count` numbers, not below `floor`. A sequence ends below 2^63 and does not begin
/// again.
pub(super) async fn reserve(context: &Context, name: &Name, count: u32, floor: u64) -> Result<u64> {
    let count = i64::from(count.max(1));
    let floor = i64::try_from(floor.max(1)).ok();
    let Some(least) = floor.and_then(|floor| floor.checked_add(count - 1)) else {
        return Err(Error::new(ErrorKind::Config, "a sequence ends below 2^63"));
    };
    let reserved = context.requests.reserve(name.as_str(), count, least).await;
    let last = reserved.map_err(|failure| context.explain(failure))?;
    u64::try_from(last - count + 1)
        .map_err(|_| Error::new(ErrorKind::Store, "the lock tables count below zero"))
}
