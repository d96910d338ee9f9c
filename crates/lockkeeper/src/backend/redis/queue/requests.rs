//! What can be asked of the queue, each in one script.

use super::{Place, Shared, flags, strange};
use crate::backend::redis::key::Keys;
use crate::backend::redis::script::{Places, Script};
use crate::backend::redis::tenure::{Bid, Step};
use crate::backend::{Claim, LossReason, Mode};
use crate::error::Result;
use redis::Value;
use std::collections::HashSet;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) ask: Script,
    pub(super) release: Script,
    pub(super) succeed: Script,
    pub(super) renew: Script,
    pub(super) leave: Script,
    pub(super) beat: Script,
    pub(super) disown: Script,
    pub(super) break_hold: Script,
    pub(super) show: Script,
}

impl Scripts {
    pub(super) fn new(prefix: &str) -> Self {
        // As a Lua literal: the prefix comes from the URL.
        let prefix = prefix.replace('\\', "\\\\").replace('\'', "\\'");
        let library = include_str!("lib.lua").replace("@PREFIX@", &prefix);
        // Held or kept free by the lock's own key, while nobody waits: then the others do not exist.
        let first_is_enough = "string.find(redis.call('GET', KEYS[1]) or '', '^[XF]')";
        let whole = |code: &str| Script::of(Places { all: 3, keys: 3, first_is_enough }, code);
        // The common cases first: they return before the rest is even set up.
        let quick = |quick: &str, slow: &str| {
            whole(&format!("{}{library}{slow}", quick.replace("@PREFIX@", &prefix)))
        };
        let telling =
            |one: &str, slow: &str| quick(&[include_str!("heirs.lua"), one].concat(), slow);
        let plain = |body: &str| whole(&format!("{library}{body}"));
        Self {
            ask: quick(include_str!("ask.lua"), include_str!("ask_slowly.lua")),
            release: telling(include_str!("release.lua"), include_str!("release_slowly.lua")),
            succeed: telling(include_str!("succeed.lua"), include_str!("succeed_slowly.lua")),
            renew: whole(include_str!("renew.lua")),
            leave: plain(include_str!("leave.lua")),
            beat: plain(include_str!("beat.lua")),
            disown: plain(include_str!("disown.lua")),
            break_hold: plain(include_str!("break.lua")),
            show: plain(include_str!("show.lua")),
        }
    }
}

/// What became of asking for a name.
#[derive(Debug)]
pub(super) enum Asked {
    Granted(u64),
    Busy,
    Queued {
        place: usize,
        /// Until someone ahead may be over.
        next: Duration,
        /// Below every token granted from now on.
        stamp: u64,
    },
    /// The owner holds the name in this mode, which does not cover what it asks for.
    Uncovered(Mode),
}

/// What became of leaving the queue.
#[derive(Debug)]
pub(super) enum Left {
    /// It was number so many; 0 if it was not there.
    From(usize),
    /// It had been granted meanwhile.
    Granted(u64),
}

/// What became of passing a name on.
#[derive(Debug)]
pub(super) enum Succeeded {
    /// The store has the heir, and these of its keeper next in line, if that was asked.
    Before(Vec<String>),
    /// It was not there to be passed on.
    Not(LossReason),
    /// So it looks, but it may have been passed on before, and be over.
    Unknown,
}

/// What a sign of life found.
#[derive(Debug)]
pub(super) struct Beat {
    /// Whether the one before was recent enough.
    pub(super) was_alive: bool,
    pub(super) next: Duration,
    pub(super) stamp: u64,
    /// The claims of this keeper that hold the name.
    pub(super) held: Vec<(String, Option<u64>, Duration)>,
    /// Those that are in the queue, if that was asked.
    pub(super) waiting: Option<HashSet<String>>,
}

impl Shared {
    pub(super) fn bid(&self, claim: &Claim, id: &str) -> Bid {
        let (mode, ttl) = (code_of(claim.mode), claim.ttl.as_millis());
        let (keeper, owner, note) = (&self.keeper, &claim.owner, &claim.note);
        let identity = one_line(&claim.identity);
        let record = format!("{keeper}\n{mode}\n{ttl}\n{owner}\n{identity}\n{note}");
        // To be vouched for by replicas takes a word from the store.
        let alone = claim.mode == Mode::Exclusive
            && owner.id() == id
            && !self.barging
            && !self.link.asks_replicas();
        Bid { ttl: claim.ttl, record, alone }
    }

    pub(super) async fn ask(
        &self,
        claim: &Claim,
        Place { keys, id, .. }: &Place,
        bid: &Bid,
        may_queue: bool,
        again: bool,
    ) -> Result<Asked> {
        let ttl = claim.ttl.as_millis().to_string();
        let exclusive = claim.mode == Mode::Exclusive;
        let first = flags([exclusive, may_queue, again, self.barging]);
        let repeated = flags([exclusive, may_queue, true, self.barging]);
        let known = self.known.of(&keys.lock).to_string();
        let arguments =
            [id.as_bytes(), ttl.as_bytes(), bid.record.as_bytes(), &first, known.as_bytes()];
        let mut repeatedly = arguments;
        repeatedly[3] = &repeated;
        let script = &self.scripts.ask;
        let answer = self.link.call_safely(script, &keys.all(), &arguments, &repeatedly).await?;
        let asked = match &answer {
            Value::Array(words) => match (&words[..], words.first().and_then(text)) {
                (_, Some("busy")) => Some(Asked::Busy),
                ([_, mode], Some("uncovered")) => {
                    text(mode).and_then(mode_of).map(Asked::Uncovered)
                }
                ([_, place, next, stamp], Some("queued")) => queued(place, next, stamp),
                _ => None,
            },
            answer => token_of(answer).map(Asked::Granted),
        };
        asked.ok_or_else(|| strange(&answer))
    }

    /// Tells that the name was passed on, to be kept for `span`.
    pub(super) async fn succeed(
        &self,
        keys: &Keys,
        step: &Step,
        bid: &Bid,
        token: u64,
        span: Duration,
    ) -> Result<Succeeded> {
        let (token, span) = (token.to_string(), span.as_millis().to_string());
        let (id, before) = (step.heir.as_bytes(), with_blanks(&step.before));
        let first = flags([step.asks_for_heirs, false]);
        let repeated = flags([step.asks_for_heirs, true]);
        let (record, before) = (bid.record.as_bytes(), before.as_bytes());
        let arguments = [id, token.as_bytes(), span.as_bytes(), record, before, &first];
        let mut again = arguments;
        again[5] = &repeated;
        let (script, keys) = (&self.scripts.succeed, keys.all());
        let answer = self.link.call_telling(script, &keys, &arguments, &again).await?;
        match &answer {
            Value::Array(heirs) => {
                ids(heirs).map(Succeeded::Before).ok_or_else(|| strange(&answer))
            }
            Value::Int(0) => Ok(Succeeded::Not(LossReason::Gone)),
            Value::Int(1) => Ok(Succeeded::Unknown),
            Value::BulkString(reason) => {
                let reason = String::from_utf8_lossy(reason).into_owned();
                Ok(Succeeded::Not(LossReason::Broken { reason }))
            }
            _ => Err(strange(&answer)),
        }
    }

    pub(super) async fn leave(&self, Place { keys, id, .. }: &Place) -> Result<Left> {
        let (script, arguments) = (&self.scripts.leave, [id.as_bytes()]);
        let answer = self.link.call_safely(script, &keys.all(), &arguments, &arguments).await?;
        let left = match &answer {
            Value::Int(_) => token_of(&answer).map(Left::Granted),
            Value::Array(words) => {
                words.get(1).and_then(number).and_then(|p| usize::try_from(p).ok()).map(Left::From)
            }
            _ => None,
        };
        left.ok_or_else(|| strange(&answer))
    }

    pub(super) async fn beat(&self, keys: &Keys, call_the_roll: bool) -> Result<Beat> {
        let call_the_roll = flags([call_the_roll]);
        let arguments = [self.keeper.as_bytes(), &call_the_roll];
        let answer = self.link.call(&self.scripts.beat, &keys.all(), &arguments).await?;
        let Value::Array(words) = &answer else { return Err(strange(&answer)) };
        let [alive, next, stamp, Value::Array(held), waiting @ ..] = &words[..] else {
            return Err(strange(&answer));
        };
        let parsed = || {
            let waiting = match waiting {
                [Value::Array(waiting)] => Some(ids(waiting)?),
                _ => None,
            };
            let held = held.chunks_exact(3).map(|held| {
                Some((text(&held[0])?.to_owned(), token_of(&held[1]), span(&held[2])?))
            });
            Some(Beat {
                was_alive: number(alive)? == 1,
                next: span(next)?,
                stamp: number(stamp)?,
                held: held.collect::<Option<_>>()?,
                waiting,
            })
        };
        parsed().ok_or_else(|| strange(&answer))
    }

    /// Removes claims that this keeper does not have any more.
    pub(super) async fn disown(&self, keys: &[&str; 3], strays: &[String]) -> Result<()> {
        let ids = with_blanks(strays);
        let arguments = [self.keeper.as_bytes(), ids.as_bytes()];
        let removed = self.link.call(&self.scripts.disown, keys, &arguments).await?;
        tracing::debug!(key = keys[0], ?removed, "claims that nobody has any more");
        Ok(())
    }
}

impl Beat {
    /// Every claim that is said to be this keeper's.
    pub(super) fn named(&self) -> impl Iterator<Item = &str> {
        let held = self.held.iter().map(|(id, ..)| id.as_str());
        held.chain(self.waiting.iter().flatten().map(String::as_str))
    }
}

pub(super) fn ids<C: FromIterator<String>>(values: &[Value]) -> Option<C> {
    values.iter().map(|id| text(id).map(str::to_owned)).collect()
}

/// Each with a blank behind it, by which a script finds whole ones only.
pub(super) fn with_blanks(ids: &[String]) -> String {
    ids.iter().flat_map(|id| [id, " "]).collect()
}

fn queued(place: &Value, next: &Value, stamp: &Value) -> Option<Asked> {
    let place = usize::try_from(number(place)?).ok()?;
    Some(Asked::Queued { place, next: span(next)?, stamp: number(stamp)? })
}

/// How a mode is written in the store.
pub(super) fn code_of(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => "x".to_owned(),
        Mode::Shared => "s".to_owned(),
        Mode::Permit { of } => format!("p{of}"),
    }
}

pub(super) fn mode_of(code: &str) -> Option<Mode> {
    match code.split_at_checked(1)? {
        ("x", "") => Some(Mode::Exclusive),
        ("s", "") => Some(Mode::Shared),
        ("p", of) => Some(Mode::Permit { of: of.parse().ok()? }),
        _ => None,
    }
}

pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

pub(super) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        other => text(other)?.parse().ok(),
    }
}

/// A token; none is so large that others could not count that far.
pub(super) fn token_of(value: &Value) -> Option<u64> {
    number(value).filter(|token| *token < 1 << 53)
}

/// Milliseconds; what is over already is none.
pub(super) fn span(value: &Value) -> Option<Duration> {
    match value {
        Value::Int(millis) => Some(Duration::from_millis(u64::try_from(*millis).unwrap_or(0))),
        _ => None,
    }
}

fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}
