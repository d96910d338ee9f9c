//! What the recipes with one string key per lock share.
//!
//! The key is called as the lock is, which is the layout that most other libraries use. Nobody can be
//! listed in it: the key of a lock looks like any other string. So these recipes have no inspector, and
//! nobody is told of a release: those that wait ask again and again, as the engine does for stores
//! without a way to wait.

#[cfg(test)]
mod tests;

use super::client::Client;
use super::error::unexpected;
use crate::backend::Name;
use crate::error::Result;
use redis::{Cmd, Value};

/// The keys of one server. Commands here may be sent twice, which two of the three recipes do not bear:
/// that is among their flaws.
#[derive(Debug)]
pub(super) struct SingleKeys {
    pub(super) client: Client,
    /// Empty unless the URL says otherwise: others use names as they are.
    pub(super) prefix: String,
    /// The store for people, without secrets.
    pub(super) url: String,
}

impl SingleKeys {
    /// The key of a name.
    pub(super) fn of(&self, name: &Name) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Sends a command whose first word is a key. It may be sent twice.
    pub(super) async fn command(&self, verb: &str, words: &[&str]) -> Result<Value> {
        let mut command: Cmd = redis::cmd(verb);
        words.iter().for_each(|word| {
            command.arg(word);
        });
        self.client.command(words.first().copied(), &command).await
    }

    /// For a command that says whether it did anything.
    pub(super) async fn did(&self, verb: &str, words: &[&str]) -> Result<bool> {
        match self.command(verb, words).await? {
            Value::Int(count) => Ok(count > 0),
            other => Err(unexpected(&other)),
        }
    }

    /// Warns of an unsafe recipe, wherever it is opened.
    pub(super) fn warn(&self, recipe: &str, why: &str) {
        tracing::warn!(
            store = self.url,
            "the recipe {recipe} is UNSAFE: {why}. It is there to be seen failing; use \
             ?recipe=set-nx-px or ?recipe=queue"
        );
    }
}
