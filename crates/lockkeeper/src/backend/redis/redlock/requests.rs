//! Every atomic request to one node, and what it answers.

use super::keys::Keys;
use super::record::{holder_of, id_of, passed_value_of, taken_as, value_of, view_of};
use crate::backend::redis::client::{Client, Script};
use crate::backend::redis::error::unexpected;
use crate::backend::redis::protocol::{number, span, text, token_of};
use crate::backend::{Claim, ClaimId, FencingToken, HolderView, Kept, Name, Ticket, Vote};
use crate::error::{Error, ErrorKind, Result};
use redis::Value;
use std::time::Duration;

/// The requests to one server.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) client: Client,
    pub(super) keys: Keys,
    ask: Script,
    raise: Script,
    keep: Script,
    release: Script,
    show: Script,
    breaks: Script,
}

/// Who has a lock.
#[derive(Debug)]
pub(super) struct Shown {
    /// The id of the claim, if it is one of ours.
    pub(super) id: Option<String>,
    /// The id of the claim that the lock was taken as, if it is one of ours.
    pub(super) taken_as: Option<String>,
    pub(super) view: HolderView,
}

/// How a lock is found that is to be given back.
#[derive(Debug, Clone, Copy)]
pub(super) enum By<'a> {
    /// By the claim that has it now, as a ticket does.
    Claim(&'a str),
    /// By the claim that it was taken as.
    TakenAs(&'a str),
}

impl Requests {
    pub(super) fn new(client: Client, keys: Keys) -> Self {
        Self {
            client,
            keys,
            ask: Script::new(include_str!("ask.lua")),
            raise: Script::new(include_str!("raise.lua")),
            keep: Script::new(include_str!("keep.lua")),
            release: Script::new(include_str!("release.lua")),
            show: Script::new(include_str!("show.lua")),
            breaks: Script::new(include_str!("break.lua")),
        }
    }

    /// Takes the lock, if it is free; and remembers the token, if there is one. The server tells its
    /// clock if it is wanted.
    pub(super) async fn ask(
        &self,
        claim: &Claim,
        token: Option<FencingToken>,
        wants_clock: bool,
    ) -> Result<Vote> {
        let key = self.keys.lock(&claim.name)?;
        let (value, id, ttl) = (value_of(claim, token), claim.id.to_string(), millis(claim.ttl));
        let (token, clock): (_, &[u8]) = (digits(token), if wants_clock { b"1" } else { b"0" });
        let words = [value.as_bytes(), id.as_bytes(), ttl.as_bytes(), token.as_bytes(), clock];
        let answer = self.client.call(&self.ask, &[&key, &self.keys.token], &words).await?;
        self.vote(&key, &answer)
    }

    /// Takes the lock, if it is free, and nothing else: the plain algorithm.
    pub(super) async fn ask_plainly(&self, claim: &Claim) -> Result<Vote> {
        let key = self.keys.lock(&claim.name)?;
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(value_of(claim, None)).arg("NX").arg("PX").arg(millis(claim.ttl));
        match self.client.command(Some(&key), &set).await? {
            Value::Okay => Ok(Vote::Yes { floor: 0, clock: 0 }),
            // Taken: by whom, and whether by this very claim, if the first answer was lost.
            Value::Nil => self.ask(claim, None, false).await,
            other => Err(unexpected(&other)),
        }
    }

    fn vote(&self, key: &str, answer: &Value) -> Result<Vote> {
        let yes = |floor| token_of(floor).map(|floor| Vote::Yes { floor, clock: 0 });
        let parts = match answer {
            Value::Array(parts) => parts,
            floor => return yes(floor).ok_or_else(|| unexpected(floor)),
        };
        let read = match &parts[..] {
            [floor @ Value::BulkString(_), seconds, micros] => (|| {
                let clock =
                    number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)?;
                Some(Vote::Yes { floor: token_of(floor)?, clock })
            })(),
            [Value::Int(0), Value::BulkString(value), left] => {
                let holder = holder_of(value);
                // A foreign lock may have no end.
                let left = if *left == Value::Int(-1) { None } else { span(left) };
                Some(Vote::No { holder, left })
            }
            [Value::Int(-1)] => return Err(self.no_lock(key)),
            _ => None,
        };
        read.ok_or_else(|| unexpected(answer))
    }

    fn no_lock(&self, key: &str) -> Error {
        let at = self.client.connector.shown();
        let message = format!(
            "the key {key:?} of {at} holds something that is no lock: choose another name, or a \
             prefix in the URL"
        );
        Error::new(ErrorKind::Store, message)
    }

    /// Gives the claim its token; whether the lock was still the claim's.
    pub(super) async fn raise(&self, claim: &Claim, token: FencingToken) -> Result<bool> {
        let key = self.keys.lock(&claim.name)?;
        let (value, id) = (value_of(claim, Some(token)), claim.id.to_string());
        let token = token.to_string();
        let words = [value.as_bytes(), id.as_bytes(), token.as_bytes()];
        let answer = self.client.call(&self.raise, &[&key, &self.keys.token], &words).await?;
        Ok(answer == Value::Int(1))
    }

    /// Gives the claim its whole ttl, and takes the lock anew if nobody has it.
    pub(super) async fn keep(&self, claim: &Claim, token: Option<FencingToken>) -> Result<Kept> {
        self.keep_as(&Ticket::of(claim), &value_of(claim, token), token).await
    }

    /// As [`keep`](Self::keep), of a lock that was taken as one claim and is another's from now on.
    pub(super) async fn pass(
        &self,
        taken_as: ClaimId,
        claim: &Claim,
        token: Option<FencingToken>,
    ) -> Result<Kept> {
        let taken = Ticket { id: taken_as, ..Ticket::of(claim) };
        self.keep_as(&taken, &passed_value_of(claim, token, taken_as), token).await
    }

    /// Gives the claim its whole ttl, if the lock is its own.
    pub(super) async fn renew(&self, ticket: &Ticket) -> Result<Kept> {
        self.keep_as(ticket, "", None).await
    }

    async fn keep_as(
        &self,
        ticket: &Ticket,
        value: &str,
        token: Option<FencingToken>,
    ) -> Result<Kept> {
        let key = self.keys.lock(&ticket.name)?;
        let (id, ttl) = (ticket.id.to_string(), millis(ticket.ttl));
        let (broken, token) = (self.keys.broken(&id), digits(token));
        let words = [value.as_bytes(), id.as_bytes(), ttl.as_bytes(), token.as_bytes()];
        let keys = [&*key, &self.keys.token, &broken];
        let answer = self.client.call(&self.keep, &keys, &words).await?;
        let Value::Array(parts) = &answer else { return Err(unexpected(&answer)) };
        match &parts[..] {
            [Value::Int(1), Value::Int(-1)] => Ok(Kept::Ours { left: None }),
            [Value::Int(1), left] => Ok(Kept::Ours { left: span(left) }),
            [Value::Int(2)] => Ok(Kept::Retaken),
            [Value::Int(0)] => Ok(Kept::Others),
            [Value::Int(3), reason] => {
                Ok(Kept::Broken(text(reason).unwrap_or_default().to_owned()))
            }
            _ => Err(unexpected(&answer)),
        }
    }

    /// Gives the claim back, and tells those who wait; how many those are, or `None` if it was not there,
    /// as far as that is known: a repeated request cannot tell, and says that it was.
    pub(super) async fn release(
        &self,
        name: &Name,
        id: By<'_>,
        stay: Duration,
    ) -> Result<Option<u64>> {
        self.remove(name, id, stay, &self.keys.freed(name.as_str())).await
    }

    /// Removes what a claim that was not granted may have left. Nobody is told: a keeper that asked
    /// at the same time would be woken by everyone else who got nothing, again and again.
    pub(super) async fn withdraw(&self, name: &Name, id: &str) -> Result<()> {
        self.remove(name, By::TakenAs(id), Duration::ZERO, "").await.map(|_| ())
    }

    async fn remove(
        &self,
        name: &Name,
        id: By<'_>,
        stay: Duration,
        channel: &str,
    ) -> Result<Option<u64>> {
        let key = self.keys.lock(name)?;
        let (id, by): (_, &[u8]) = match id {
            By::Claim(id) => (id.as_bytes(), b"0"),
            By::TakenAs(id) => (id.as_bytes(), b"1"),
        };
        let (stay, channel) = (millis(stay), channel.as_bytes());
        let all = [id, channel, stay.as_bytes(), b"0", by];
        // Most releases need no more than two words, each of which costs the server time.
        let first = if stay == "0" && by == b"0" { &all[..2] } else { &all };
        let again = [id, channel, stay.as_bytes(), b"1", by];
        let answer = self.client.call_telling(&self.release, &[&key], first, &again).await?;
        let had = number(&answer).ok_or_else(|| unexpected(&answer))?;
        Ok(had.checked_sub(1))
    }

    /// Who has the lock, if somebody does.
    pub(super) async fn show(&self, name: &Name) -> Result<Option<Shown>> {
        let key = self.keys.lock(name)?;
        let answer = self.client.call(&self.show, &[&key], &[]).await?;
        let Value::Array(parts) = &answer else { return Err(unexpected(&answer)) };
        let [Value::BulkString(value), left, seconds, micros] = &parts[..] else {
            return match &parts[..] {
                [] => Ok(None),
                [Value::Int(-1)] => Err(self.no_lock(&key)),
                _ => Err(unexpected(&answer)),
            };
        };
        let now = (|| number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?))();
        let (now, left) = (now.unwrap_or(0), span(left).unwrap_or_default());
        let id = id_of(value).map(str::to_owned);
        let taken_as = taken_as(value).map(str::to_owned);
        Ok(Some(Shown { id, taken_as, view: view_of(value, now, left) }))
    }

    /// Takes the lock from the claim; whether it had it.
    pub(super) async fn break_claim(
        &self,
        name: &Name,
        id: &str,
        taken_as: &str,
        reason: &str,
    ) -> Result<bool> {
        let (key, broken) = (self.keys.lock(name)?, self.keys.broken(id));
        let all = self.keys.broken(taken_as);
        let channel = self.keys.freed(name.as_str());
        let words = [id.as_bytes(), reason.as_bytes(), channel.as_bytes()];
        let answer = self.client.call(&self.breaks, &[&key, &broken, &all], &words).await?;
        Ok(answer == Value::Int(1))
    }
}

fn digits(token: Option<FencingToken>) -> String {
    token.map_or(0, FencingToken::get).to_string()
}

/// In whole milliseconds, rounded up: a lock lingers no shorter than it was asked to.
fn millis(time: Duration) -> String {
    time.as_nanos().div_ceil(1_000_000).to_string()
}
