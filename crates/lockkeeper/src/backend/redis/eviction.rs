//! Refuses a server that may throw locks away.
//!
//! With any `maxmemory-policy` but `noeviction` Redis deletes keys to make room, and a lock whose key
//! is gone can be taken by another. That looks fine until memory is full, so it is refused when a
//! keeper connects. In a cluster every primary is asked: one that evicts is enough to be refused.
//!
//! `volatile-*` policies are no better than the others: keys of locks are those with an expiry. With
//! `noeviction` a full server refuses new claims, and lets held ones be renewed and released.

use super::client::Client;
use crate::backend::support::options::config;
use crate::error::{ErrorKind, Result};
use redis::Value;

/// Refuses a server that evicts keys when its memory is full, unless that was allowed. A user that
/// may not look at the setting gets a warning instead.
pub(super) async fn check(client: &Client, allowed: bool) -> Result<()> {
    let mut ask = redis::cmd("CONFIG");
    ask.arg("GET").arg("maxmemory-policy");
    let policy = match client.everywhere(&ask).await {
        Ok(answers) => {
            let policies: Vec<_> = answers.iter().filter_map(policy_in).collect();
            let evicts = policies.iter().find(|policy| *policy != "noeviction");
            evicts.or(policies.first()).cloned()
        }
        Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Store) => {
            tracing::warn!(%error, "cannot see whether Redis may evict locks");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    match policy {
        Some(policy) if policy != "noeviction" && !allowed => Err(config(format!(
            "{} may throw locks away when its memory is full (maxmemory-policy is {policy}): set \
             it to noeviction, or say ?allow_eviction=true",
            client.connector.shown()
        ))),
        _ => Ok(()),
    }
}

/// The policy in an answer to CONFIG GET.
fn policy_in(answer: &Value) -> Option<String> {
    let policy = match answer {
        Value::Map(pairs) => &pairs.first()?.1,
        Value::Array(parts) => parts.get(1)?,
        _ => return None,
    };
    match policy {
        Value::BulkString(policy) => Some(String::from_utf8_lossy(policy).into_owned()),
        _ => None,
    }
}
