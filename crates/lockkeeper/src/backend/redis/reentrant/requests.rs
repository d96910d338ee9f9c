//! What can be asked of a lock, each in one script.

use super::owner::field_of;
use super::{Keys, Shared};
use crate::backend::redis::script::{Places, Script};
pub(super) use crate::backend::redis::trouble::strange;
use crate::backend::{Claim, FencingToken, LossReason, Mode, Standing};
use crate::error::Result;
use redis::Value;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Scripts {
    acquire: Script,
    renew: Script,
    release: Script,
    break_hold: Script,
    show: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        let library = include_str!("lib.lua");
        let places = Places { all: 4, keys: 2, first_is_enough: "false" };
        let plain = |body: &str| Script::of(places, &format!("{library}{body}"));
        let guarded = |body: &str| plain(&format!("if foreign then return FOREIGN end\n{body}"));
        Self {
            acquire: guarded(include_str!("acquire.lua")),
            renew: guarded(include_str!("renew.lua")),
            release: guarded(include_str!("release.lua")),
            break_hold: guarded(include_str!("break.lua")),
            show: plain(include_str!("show.lua")),
        }
    }
}

/// What became of asking for a name.
#[derive(Debug)]
pub(super) enum Asked {
    Granted(u64),
    /// For so long, unless it is given back or renewed.
    Busy(Option<Duration>),
    /// The owner reads, and asks to write.
    Uncovered,
}

impl Shared {
    pub(super) async fn acquire(&self, claim: &Claim, keys: &Keys) -> Result<Asked> {
        let id = claim.id.to_string();
        let mode: &[u8] = if claim.mode == Mode::Exclusive { b"x" } else { b"s" };
        let ttl = claim.ttl.as_millis().to_string();
        let field = field_of(&claim.owner);
        let identity = claim.identity.replace(char::is_control, " ");
        let rest = format!("{}\n{}\n{identity}\n{}", self.channel, claim.owner, claim.note);
        let arguments = [id.as_bytes(), mode, ttl.as_bytes(), field.as_bytes(), rest.as_bytes()];
        let answer = self.run_safely(&self.scripts.acquire, keys, &arguments).await?;
        let asked = match &answer {
            Value::Int(token) => u64::try_from(*token).ok().map(Asked::Granted),
            Value::Array(words) => match (words.first().and_then(text), words.get(1)) {
                (Some("busy"), Some(Value::Int(left))) => {
                    Some(Asked::Busy(u64::try_from(*left).ok().map(Duration::from_millis)))
                }
                (Some("uncovered"), _) => Some(Asked::Uncovered),
                _ => None,
            },
            _ => None,
        };
        asked.ok_or_else(|| strange(&answer))
    }

    pub(super) async fn renew(&self, keys: &Keys, id: &str, ttl: Duration) -> Result<Standing> {
        let ttl = ttl.as_millis().to_string();
        match self.run_safely(&self.scripts.renew, keys, &[id.as_bytes(), ttl.as_bytes()]).await? {
            Value::Int(1) => Ok(Standing::Held),
            Value::Array(words) => Ok(Standing::Lost(match words.get(1).and_then(text) {
                Some(reason) => LossReason::Broken { reason: reason.to_owned() },
                None => LossReason::Gone,
            })),
            other => Err(strange(&other)),
        }
    }

    pub(super) async fn release(
        &self,
        keys: &Keys,
        id: &str,
        linger: Duration,
        withdrawn: bool,
    ) -> Result<()> {
        let linger = linger.as_millis().to_string();
        let (first, repeated) = if withdrawn { (b"1", b"1") } else { (b"0", b"2") };
        let arguments = |flag| self.with_places(keys, &[id.as_bytes(), linger.as_bytes(), flag]);
        let (script, first, again) = (&self.scripts.release, arguments(first), arguments(repeated));
        match self.link.call_telling(script, &keys.all(), &first, &again).await? {
            Value::Int(0) => Err(LossReason::Gone.to_error()),
            Value::BulkString(reason) => {
                let reason = String::from_utf8_lossy(&reason).into_owned();
                Err(LossReason::Broken { reason }.to_error())
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn break_hold(
        &self,
        keys: &Keys,
        token: FencingToken,
        reason: &str,
    ) -> Result<bool> {
        let token = token.to_string();
        let arguments = [token.as_bytes(), reason.as_bytes()];
        match self.run(&self.scripts.break_hold, keys, &arguments).await? {
            Value::Int(broken) => Ok(broken > 0),
            other => Err(strange(&other)),
        }
    }

    /// Who holds the name, as [`view`](super::view) reads it.
    pub(super) async fn look(&self, keys: &Keys) -> Result<Value> {
        self.run(&self.scripts.show, keys, &[]).await
    }

    async fn run(&self, script: &Script, keys: &Keys, arguments: &[&[u8]]) -> Result<Value> {
        self.link.call(script, &keys.all(), &self.with_places(keys, arguments)).await
    }

    /// As [`run`](Self::run), for what counts only once the replicas that were asked for have it.
    async fn run_safely(&self, script: &Script, keys: &Keys, arguments: &[&[u8]]) -> Result<Value> {
        let arguments = self.with_places(keys, arguments);
        self.link.call_safely(script, &keys.all(), &arguments, &arguments).await
    }

    /// What every script is told first.
    fn with_places<'a>(&'a self, keys: &'a Keys, arguments: &[&'a [u8]]) -> Vec<&'a [u8]> {
        let mut all = vec![self.publish.as_bytes(), keys.readers.as_bytes()];
        all.extend(arguments);
        all
    }
}

pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}
