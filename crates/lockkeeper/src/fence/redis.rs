//! A fenced value in Redis, by the crate `redis`: a hash with the fields `fence` and `value`,
//! as [`REDIS_ENTER`] and [`REDIS_WRITE`] keep it.
//!
//! ```no_run
//! use lockkeeper::fence;
//!
//! # async fn work(mut db: redis::aio::MultiplexedConnection, guard: lockkeeper::Guard) -> Result<(), Box<dyn std::error::Error>> {
//! let token = guard.require_token()?;
//! let left: Option<i64> = fence::redis::enter(&mut db, "stock:tea", token).await?;
//! fence::redis::write(&mut db, "stock:tea", token, left.unwrap_or(0) - 1).await?;
//! # Ok(()) }
//! ```

use super::{REDIS_ENTER, REDIS_WRITE};
use crate::claim::FencingToken;
use crate::error::{Error, ErrorKind, Result};
use ::redis::aio::ConnectionLike;
use ::redis::{Cmd, FromRedisValue, ToRedisArgs, cmd};

/// Shows the token of a new holder and reads the value: from here on every smaller token is refused.
///
/// # Errors
/// [`ErrorKind::Lost`] when a larger token was here, [`ErrorKind::Store`] with what the server said.
///
/// # Cancel safety
/// Dropped half-way, it may have been carried out; entering again does no harm.
pub async fn enter<T: FromRedisValue>(
    db: &mut impl ConnectionLike,
    key: impl ToRedisArgs,
    token: FencingToken,
) -> Result<Option<T>> {
    let answer = script(REDIS_ENTER, key, token).query_async(db).await;
    answer.map_err(|error: ::redis::RedisError| match error.code() {
        Some("STALE") => stale(token),
        _ => failed(error),
    })
}

/// Writes the value, unless a larger token was here: the check and the write are one step.
///
/// # Errors
/// As [`enter`]; nothing is written then.
///
/// # Cancel safety
/// Dropped half-way, it may have been carried out.
pub async fn write(
    db: &mut impl ConnectionLike,
    key: impl ToRedisArgs,
    token: FencingToken,
    value: impl ToRedisArgs,
) -> Result<()> {
    let written: bool =
        script(REDIS_WRITE, key, token).arg(value).query_async(db).await.map_err(failed)?;
    if written { Ok(()) } else { Err(stale(token)) }
}

fn script(text: &str, key: impl ToRedisArgs, token: FencingToken) -> Cmd {
    let mut script = cmd("EVAL");
    script.arg(text).arg(1).arg(key).arg(token.get());
    script
}

fn stale(token: FencingToken) -> Error {
    let message = format!("token {token} is stale: a larger one was here; stop the work");
    Error::new(ErrorKind::Lost, message)
}

fn failed(error: ::redis::RedisError) -> Error {
    Error::new(ErrorKind::Store, format!("Redis refused: {error}")).caused_by(error)
}
