//! Reading what a script answered.
//!
//! Lua has one kind of number, exact up to 2^53, and Redis cuts fractions off when it answers with one.
//! So scripts answer with digits where that matters, and with numbers where it does not; both are read
//! here. What cannot be read is `None`, of which a caller makes an error that shows the answer.

use redis::Value;
use std::time::Duration;

/// As text, where it is some.
pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// As a number, whether Redis sent it as one or as digits. Scripts send digits where a Lua number
/// would be rounded.
pub(super) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        other => text(other)?.parse().ok(),
    }
}

/// As a token: below 2^53, up to which Lua counts exactly.
pub(super) fn token_of(value: &Value) -> Option<u64> {
    number(value).filter(|token| *token < 1 << 53)
}

/// As milliseconds; a negative number means zero.
pub(super) fn span(value: &Value) -> Option<Duration> {
    match value {
        Value::Int(millis) => Some(Duration::from_millis(u64::try_from(*millis).unwrap_or(0))),
        _ => None,
    }
}

/// As the ids of claims.
pub(super) fn ids<C: FromIterator<String>>(values: &[Value]) -> Option<C> {
    values.iter().map(|id| text(id).map(str::to_owned)).collect()
}
