//! One string key for a lock, called as the lock is: the layout that most other libraries share.
//!
//! [`set_nx_px`] is the sound one. [`setnx_expire`] and [`getset`] came before it and are
//! **unsafe**: they are here to be seen failing, and to tell what the others are for.

pub mod getset;
pub mod set_nx_px;
pub mod setnx_expire;
#[cfg(test)]
mod tests;

use super::link::Link;
use super::trouble::strange;
use crate::backend::{Backend, Name};
use crate::error::Result;
use redis::{Cmd, Value};
use std::sync::Arc;

/// The options of a URL that mean something here: there is no queue to barge into, and a plain
/// command does not wait for replicas.
pub(super) const OPTIONS: &[&str] = &[
    "recipe",
    "prefix",
    "timeout",
    "allow_eviction",
    "tls",
    "ca",
    "cert",
    "key",
    "sentinel_user",
    "sentinel_password",
];

/// Opens one of the three.
pub(super) fn open(recipe: &str, link: Link, prefix: String, url: String) -> Arc<dyn Backend> {
    let keys = Arc::new(Keys { link, prefix, url });
    match recipe {
        "setnx-expire" => Arc::new(setnx_expire::SetnxExpire::open(keys)),
        "getset" => Arc::new(getset::GetSet::open(keys)),
        _ => Arc::new(set_nx_px::SetNxPx::open(keys)),
    }
}

/// The keys of one server, and what a backend and its leases share.
#[derive(Debug)]
struct Keys {
    link: Link,
    /// Empty unless the URL says otherwise: others use names as they are.
    prefix: String,
    url: String,
}

impl Keys {
    fn of(&self, name: &Name) -> String {
        format!("{}{name}", self.prefix)
    }

    async fn command(&self, verb: &str, words: &[&str]) -> Result<Value> {
        let mut command: Cmd = redis::cmd(verb);
        words.iter().for_each(|word| {
            command.arg(word);
        });
        self.link.command(words.first().copied(), &command).await
    }

    /// For a command that says whether it did anything.
    async fn did(&self, verb: &str, words: &[&str]) -> Result<bool> {
        match self.command(verb, words).await? {
            Value::Int(count) => Ok(count > 0),
            other => Err(strange(&other)),
        }
    }

    fn warn(&self, recipe: &str, why: &str) {
        tracing::warn!(
            store = self.url,
            "the recipe {recipe} is UNSAFE: {why}. It is there to be seen failing; use \
             ?recipe=set-nx-px or ?recipe=queue"
        );
    }
}
