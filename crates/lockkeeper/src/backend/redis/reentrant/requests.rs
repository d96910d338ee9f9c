//! Every request of the recipe, each one script and one function, parsing included.
//!
//! All of them are idempotent: a claim is noted by its id, and the counts that Redisson reads are
//! counted anew from the notes (see `lib.lua`).

use super::keys::Keys;
use super::owner::field_of;
use crate::backend::redis::client::{Client, KeyCount, Script};
use crate::backend::redis::error::unexpected;
use crate::backend::redis::protocol::text;
use crate::backend::{Claim, FencingToken, LossReason, Mode, Standing};
use crate::error::Result;
use redis::Value;
use std::time::Duration;

/// One per request.
#[derive(Debug)]
struct Scripts {
    acquire: Script,
    renew: Script,
    release: Script,
    break_hold: Script,
    show: Script,
}

impl Scripts {
    /// All but the look refuse a key that is no lock, before they write anything.
    fn new() -> Self {
        let library = include_str!("lib.lua");
        let count = KeyCount { all: 4, keys: 2, first_is_enough: "false" };
        let plain = |body: &str| Script::with_keys(count, &format!("{library}{body}"));
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
    /// By others, for at most this long where that is known, unless they renew it.
    Busy(Option<Duration>),
    /// The owner reads, and asks to write.
    Uncovered,
    /// The claim with this id was made in the other mode.
    OtherMode,
}

/// Sends the requests of one keeper.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) client: Client,
    /// Where this keeper is told that a claim of its own was broken.
    channel: String,
    /// The command that tells Redisson of a release: `PUBLISH`, or `SPUBLISH` in a cluster.
    publish: &'static str,
    scripts: Scripts,
}

impl Requests {
    /// Those of a keeper that listens on `channel`.
    pub(super) fn new(client: Client, channel: String, publish: &'static str) -> Self {
        Self { client, channel, publish, scripts: Scripts::new() }
    }

    /// Takes the name if the claim fits beside those that hold it.
    pub(super) async fn acquire(&self, claim: &Claim, keys: &Keys) -> Result<Asked> {
        let id = claim.id.to_string();
        let mode: &[u8] = if claim.mode == Mode::Exclusive { b"x" } else { b"s" };
        let ttl = claim.ttl.as_millis().to_string();
        let field = field_of(&claim.owner);
        // One line each: the scripts take notes apart by lines.
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
                (Some("other"), _) => Some(Asked::OtherMode),
                _ => None,
            },
            _ => None,
        };
        asked.ok_or_else(|| unexpected(&answer))
    }

    /// Gives the claim its whole ttl again, if it is still held; by a ticket never less than it has.
    pub(super) async fn renew(
        &self,
        keys: &Keys,
        id: &str,
        ttl: Duration,
        by_ticket: bool,
    ) -> Result<Standing> {
        let ttl = ttl.as_millis().to_string();
        let by_ticket: &[u8] = if by_ticket { b"1" } else { b"0" };
        let arguments = [id.as_bytes(), ttl.as_bytes(), by_ticket];
        match self.run_safely(&self.scripts.renew, keys, &arguments).await? {
            Value::Int(1) => Ok(Standing::Held),
            Value::Array(words) => Ok(Standing::Lost(match words.get(1).and_then(text) {
                Some(reason) => LossReason::Broken { reason: reason.to_owned() },
                None => LossReason::Gone,
            })),
            other => Err(unexpected(&other)),
        }
    }

    /// Gives the claim back, once `stay` has passed. One that is `withdrawn` must not come after all:
    /// a request for it that is still on its way finds that noted.
    pub(super) async fn release(
        &self,
        keys: &Keys,
        id: &str,
        stay: Duration,
        withdrawn: bool,
    ) -> Result<()> {
        let stay = stay.as_millis().to_string();
        let (first, repeated) = if withdrawn { (b"1", b"1") } else { (b"0", b"2") };
        let arguments = |flag| self.with_common(keys, &[id.as_bytes(), stay.as_bytes(), flag]);
        let (script, first, again) = (&self.scripts.release, arguments(first), arguments(repeated));
        match self.client.call_telling(script, &keys.all(), &first, &again).await? {
            Value::Int(0) => Err(LossReason::Gone.to_error()),
            Value::BulkString(reason) => {
                let reason = String::from_utf8_lossy(&reason).into_owned();
                Err(LossReason::Broken { reason }.to_error())
            }
            _ => Ok(()),
        }
    }

    /// Takes the claims with `token` from their holder; whether there were any.
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
            other => Err(unexpected(&other)),
        }
    }

    /// Who holds the name, as [`inspect`](super::inspect) reads it.
    pub(super) async fn show(&self, keys: &Keys) -> Result<Value> {
        self.run(&self.scripts.show, keys, &[]).await
    }

    /// Runs a script with what all of them are told first.
    async fn run(&self, script: &Script, keys: &Keys, arguments: &[&[u8]]) -> Result<Value> {
        self.client.call(script, &keys.all(), &self.with_common(keys, arguments)).await
    }

    /// As [`run`](Self::run), for what counts only once the replicas that were asked for have it.
    async fn run_safely(&self, script: &Script, keys: &Keys, arguments: &[&[u8]]) -> Result<Value> {
        let arguments = self.with_common(keys, arguments);
        self.client.call_safely(script, &keys.all(), &arguments, &arguments).await
    }

    /// What every script is told first.
    fn with_common<'a>(&'a self, keys: &'a Keys, arguments: &[&'a [u8]]) -> Vec<&'a [u8]> {
        let mut all = vec![self.publish.as_bytes(), keys.readers.as_bytes()];
        all.extend(arguments);
        all
    }
}
