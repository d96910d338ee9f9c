//! Every request of the queue, each one script and one function, parsing included.
//!
//! A request whose answer is lost is sent once more by the client, and told so: each script takes a
//! flag for that, or does the same when it is run twice. An answer that cannot be read is an error,
//! which leaves doubt as one that did not come.
//!
//! | function | script | what it does |
//! |---|---|---|
//! | [`ask`](Requests::ask) | `ask.lua`, `ask_full.lua` | takes the name, or joins its queue |
//! | [`renew`](Requests::renew) | `renew.lua` | gives a claim its whole ttl again |
//! | [`release`](Requests::release) | `release.lua`, `release_full.lua` | gives it back, and lets the next in |
//! | [`hand_over`](Requests::hand_over) | `hand_over.lua`, `hand_over_full.lua` | tells of a local hand-over |
//! | [`leave`](Requests::leave) | `leave.lua` | leaves the queue |
//! | [`heartbeat`](Requests::heartbeat) | `heartbeat.lua` | keeps this keeper's waiters alive, looks at the name |
//! | [`disown`](Requests::disown) | `disown.lua` | removes claims that nobody has |
//! | [`break_hold`](Requests::break_hold) | `break.lua` | takes a claim from its holder |
//! | [`show`](Requests::show) | `show.lua` | who holds and who waits |

use super::answers::{HandedOver, Left, Look};
use super::last_tokens::LastTokens;
use super::local_handover::Step;
use super::own_claims::Owned;
use super::record::{code_of, mode_of};
use super::scripts::Scripts;
use crate::backend::redis::client::Client;
use crate::backend::redis::error::unexpected;
use crate::backend::redis::keys::Keys;
use crate::backend::redis::protocol::{ids, number, span, text, token_of};
use crate::backend::{Claim, FencingToken, LossReason, Mode, Moment, Name, Standing};
use crate::error::Result;
use redis::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where a claim is in Redis: the keys of its name, and its id, which every request of it carries. A
/// request is for this claim alone, from any keeper: with a wrong id it finds nothing.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) keys: Keys,
    pub(super) id: String,
    /// Keeps it among this keeper's claims; `None` for one that is only withdrawn.
    pub(super) owned: Option<Arc<Owned>>,
}

/// Whose claim it is after a renewal: that keeper is told what becomes of the claim, and asked whether it
/// has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// As it was.
    Same,
    /// As it was, by the ticket of a claim that others may have, too.
    Kept,
    /// This keeper's.
    Ours,
    /// No keeper's, until one takes it over. One that once had it, and was asked, would say that it has no
    /// such claim, and take it from the one that does.
    Nobodys,
}

/// In the place of a keeper that stays the same.
const AS_IT_WAS: &str = "-";

/// In the place of the keeper of a claim that is nobody's: no keeper is called so.
const NOBODY: &str = "00000000000000000000000000000000";

/// What a claim stands in the queue with.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) ttl: Duration,
    /// What is written of it in Redis, from the keeper on.
    pub(super) record: String,
    /// Whether it can take part in a local hand-over: it is exclusive, and its owner cannot enter
    /// again.
    pub(super) alone: bool,
}

/// What became of asking for a name.
#[derive(Debug)]
pub(super) enum Asked {
    Granted(u64),
    Busy,
    Queued {
        place: usize,
        /// Until the first claim ahead may expire.
        next: Duration,
        /// Below every token granted from now on.
        stamp: u64,
    },
    /// The owner holds the name in this mode, which does not cover what it asks for.
    Uncovered(Mode),
    /// The claim with this id was made in this mode and with this ttl.
    OtherTerms(Mode, Duration),
}

/// A claim of this keeper whose turn it is, by the answer to a request sent at `since`.
#[derive(Debug)]
pub(super) struct Promoted {
    pub(super) id: String,
    pub(super) token: u64,
    pub(super) since: Moment,
    /// This keeper's claims that are next in the queue.
    pub(super) successors: Vec<String>,
}

/// What became of giving a claim back.
#[derive(Debug, Default)]
pub(super) struct Released {
    /// Claims of this keeper whose turn it is now, to be woken.
    pub(super) next: Vec<Promoted>,
    /// Why Redis did not have the claim any more.
    pub(super) lost: Option<LossReason>,
}

/// What Redis may not have heard of a claim that is given back: it was handed over locally.
#[derive(Debug)]
pub(super) struct Unheard<'a> {
    pub(super) token: u64,
    /// The claims that may be on record in its place.
    pub(super) predecessors: &'a [String],
}

/// Sends the requests of one keeper.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) client: Client,
    pub(super) prefix: String,
    /// This keeper's own name in Redis: its waiters live and die with it.
    keeper: String,
    barging: bool,
    scripts: Scripts,
    pub(super) last_tokens: LastTokens,
    /// How many requests had to be told from their repetition.
    numbered: AtomicU64,
}

impl Requests {
    /// Those of a keeper that is called `keeper` in Redis.
    pub(super) fn new(client: Client, prefix: String, keeper: String, barging: bool) -> Self {
        let scripts = Scripts::new(&prefix);
        let (last_tokens, numbered) = Default::default();
        Self { client, prefix, keeper, barging, scripts, last_tokens, numbered }
    }

    /// Whether newcomers may take a free name before those that wait.
    pub(super) fn is_barging(&self) -> bool {
        self.barging
    }

    /// The claim as it stands in the queue.
    pub(super) fn request(&self, claim: &Claim, id: &str) -> Request {
        let (mode, ttl) = (code_of(claim.mode), claim.ttl.as_millis());
        let (keeper, owner, note) = (&self.keeper, &claim.owner, &claim.note);
        let identity = claim.identity.replace(char::is_control, " ");
        let record = format!("{keeper}\n{mode}\n{ttl}\n{owner}\n{identity}\n{note}");
        // Not where replicas were asked for: to have them takes an answer of Redis.
        let alone = claim.mode == Mode::Exclusive
            && owner.id() == id
            && !self.barging
            && !self.client.asks_replicas();
        Request { ttl: claim.ttl, record, alone }
    }

    /// Takes the name if it is free and nobody is before the claim; else, if it `may_queue`, joins
    /// the queue. `again` says that it was asked for before.
    pub(super) async fn ask(
        &self,
        claim: &Claim,
        Entry { keys, id, .. }: &Entry,
        request: &Request,
        may_queue: bool,
        again: bool,
    ) -> Result<Asked> {
        let ttl = claim.ttl.as_millis().to_string();
        let exclusive = claim.mode == Mode::Exclusive;
        let first = flags([exclusive, may_queue, again || claim.by_id, self.barging]);
        let repeated = flags([exclusive, may_queue, true, self.barging]);
        let known = self.last_tokens.of(&keys.lock).to_string();
        let arguments =
            [id.as_bytes(), ttl.as_bytes(), request.record.as_bytes(), &first, known.as_bytes()];
        let mut repeatedly = arguments;
        repeatedly[3] = &repeated;
        let script = &self.scripts.ask;
        let answer = self.client.call_safely(script, &keys.all(), &arguments, &repeatedly).await?;
        let asked = match &answer {
            Value::Array(words) => match (&words[..], words.first().and_then(text)) {
                (_, Some("busy")) => Some(Asked::Busy),
                ([_, mode], Some("uncovered")) => {
                    text(mode).and_then(mode_of).map(Asked::Uncovered)
                }
                ([_, mode, ttl], Some("other")) => {
                    let mode = text(mode).and_then(mode_of);
                    mode.zip(span(ttl)).map(|(mode, ttl)| Asked::OtherTerms(mode, ttl))
                }
                ([_, place, next, stamp], Some("queued")) => queued(place, next, stamp),
                _ => None,
            },
            answer => token_of(answer).map(Asked::Granted),
        };
        asked.ok_or_else(|| unexpected(&answer))
    }

    /// Gives the claim its whole ttl again, if it is still held, and says whose it is from then on.
    pub(super) async fn renew(
        &self,
        Entry { keys, id, .. }: &Entry,
        ttl: Duration,
        whose: Whose,
    ) -> Result<Standing> {
        let ttl = ttl.as_millis().to_string();
        let keeper = match whose {
            Whose::Same | Whose::Kept => AS_IT_WAS,
            Whose::Ours => &self.keeper,
            Whose::Nobodys => NOBODY,
        };
        let arguments = [id.as_bytes(), ttl.as_bytes(), keeper.as_bytes()];
        let arguments = &arguments[..if whose == Whose::Same { 2 } else { 3 }];
        let script = &self.scripts.renew;
        match self.client.call_safely(script, &keys.all(), arguments, arguments).await? {
            Value::Int(1) => Ok(Standing::Held),
            Value::Array(words) => Ok(Standing::Lost(match &words[..] {
                [_, Value::BulkString(reason)] => broken(reason),
                _ => LossReason::Gone,
            })),
            other => Err(unexpected(&other)),
        }
    }

    /// Gives the claim back, once `stay` has passed. With `may_be_queued` it is withdrawn, wherever
    /// it is, and its absence means nothing.
    pub(super) async fn release(
        &self,
        Entry { keys, id, .. }: &Entry,
        stay: Duration,
        may_be_queued: bool,
        unheard: Option<Unheard<'_>>,
    ) -> Result<Released> {
        let stay = stay.as_millis().to_string();
        // Three arguments in the common case, five where Redis may not have heard of this claim yet.
        // In a cluster a command is repeated that was not answered, and the grants that the first
        // answer told of would be lost: there they come by message.
        let hears = if self.client.connector.is_cluster() { "" } else { &self.keeper };
        let terms = |flag: u8| [&[flag], &flags([self.barging])[..], hears.as_bytes()].concat();
        let first = terms(if may_be_queued { b'1' } else { b'0' });
        let repeated = terms(if may_be_queued { b'1' } else { b'2' });
        let said = |Unheard { token, predecessors }| (token.to_string(), with_blanks(predecessors));
        let (token, predecessors) = unheard.map(said).unwrap_or_default();
        let arguments =
            [id.as_bytes(), stay.as_bytes(), &first, token.as_bytes(), predecessors.as_bytes()];
        let mut again = arguments;
        again[2] = &repeated;
        let count = if predecessors.is_empty() { 3 } else { 5 };
        let (script, keys, sent) = (&self.scripts.release, keys.all(), Moment::now());
        let answer = self.client.call_telling(script, &keys, &arguments[..count], &again[..count]);
        Ok(released(&answer.await?, sent))
    }

    /// Tells Redis of a local hand-over; the successor is kept for `span`.
    pub(super) async fn hand_over(
        &self,
        keys: &Keys,
        step: &Step,
        request: &Request,
        token: u64,
        span: Duration,
    ) -> Result<HandedOver> {
        let (token, span) = (token.to_string(), span.as_millis().to_string());
        let (id, predecessors) = (step.successor.as_bytes(), with_blanks(&step.predecessors));
        let first = flags([step.asks_for_successors, false]);
        let repeated = flags([step.asks_for_successors, true]);
        let (record, predecessors) = (request.record.as_bytes(), predecessors.as_bytes());
        let arguments = [id, token.as_bytes(), span.as_bytes(), record, predecessors, &first];
        let mut again = arguments;
        again[5] = &repeated;
        let (script, keys) = (&self.scripts.hand_over, keys.all());
        let answer = self.client.call_telling(script, &keys, &arguments, &again).await?;
        match &answer {
            Value::Array(successors) => {
                ids(successors).map(HandedOver::OnRecord).ok_or_else(|| unexpected(&answer))
            }
            Value::Int(0) => Ok(HandedOver::Lost(LossReason::Gone)),
            Value::Int(1) => Ok(HandedOver::Unknown),
            Value::BulkString(reason) => Ok(HandedOver::Lost(broken(reason))),
            _ => Err(unexpected(&answer)),
        }
    }

    /// Leaves the queue, unless the claim was granted meanwhile.
    pub(super) async fn leave(&self, Entry { keys, id, .. }: &Entry) -> Result<Left> {
        let arguments = [id.as_bytes(), self.keeper.as_bytes()];
        let script = &self.scripts.leave;
        let answer = self.client.call_safely(script, &keys.all(), &arguments, &arguments).await?;
        let left = match &answer {
            Value::Int(_) => token_of(&answer).map(Left::Granted),
            Value::Array(words) => {
                words.get(1).and_then(number).and_then(|p| usize::try_from(p).ok()).map(Left::From)
            }
            _ => None,
        };
        left.ok_or_else(|| unexpected(&answer))
    }

    /// Shows that this keeper's waiters live, and looks at the name. With `audit`, tells which of
    /// them are in the queue, and asks other keepers whether they still have what they hold.
    pub(super) async fn heartbeat(&self, keys: &Keys, audit: bool) -> Result<Look> {
        let audit = flags([audit]);
        let arguments = [self.keeper.as_bytes(), &audit];
        let answer = self.client.call(&self.scripts.heartbeat, &keys.all(), &arguments).await?;
        let Value::Array(words) = &answer else { return Err(unexpected(&answer)) };
        let [alive, next, stamp, Value::Array(held), waiting @ ..] = &words[..] else {
            return Err(unexpected(&answer));
        };
        let parsed = || {
            let waiting = match waiting {
                [Value::Array(waiting)] => Some(ids(waiting)?),
                _ => None,
            };
            let held = held.chunks_exact(3).map(|held| {
                Some((text(&held[0])?.to_owned(), token_of(&held[1]), span(&held[2])?))
            });
            Some(Look {
                was_alive: number(alive)? == 1,
                next: span(next)?,
                stamp: number(stamp)?,
                held: held.collect::<Option<_>>()?,
                waiting,
            })
        };
        parsed().ok_or_else(|| unexpected(&answer))
    }

    /// Removes claims that this keeper does not have any more.
    pub(super) async fn disown(&self, keys: &Keys, strays: &[String]) -> Result<()> {
        let ids = with_blanks(strays);
        let arguments = [self.keeper.as_bytes(), ids.as_bytes()];
        let removed = self.client.call(&self.scripts.disown, &keys.all(), &arguments).await?;
        tracing::debug!(key = keys.lock, ?removed, "claims that nobody has any more");
        Ok(())
    }

    /// Takes the claims with `token` from their holder; whether there were any.
    pub(super) async fn break_hold(
        &self,
        name: &Name,
        token: FencingToken,
        reason: &str,
    ) -> Result<bool> {
        let keys = Keys::new(&self.prefix, name);
        let token = token.to_string();
        // So that a repetition gets the same answer.
        let number = self.numbered.fetch_add(1, Ordering::Relaxed);
        let request = format!("{}{number:x}", self.keeper);
        let arguments = [token.as_bytes(), reason.as_bytes(), request.as_bytes()];
        match self.client.call(&self.scripts.break_hold, &keys.all(), &arguments).await? {
            Value::Int(broken) => Ok(broken > 0),
            other => Err(unexpected(&other)),
        }
    }

    /// Who holds and who waits, as [`inspect`](super::inspect) reads it; without those that wait
    /// unless `waiters`, since they may be many.
    pub(super) async fn show(&self, name: &Name, waiters: bool) -> Result<Value> {
        let keys = Keys::new(&self.prefix, name);
        let arguments: &[&[u8]] = if waiters { &[] } else { &[b"1"] };
        self.client.call(&self.scripts.show, &keys.all(), arguments).await
    }
}

/// The answer to a release that was sent at `since`; see `release.lua`. What cannot be read is ignored:
/// the claim is given back, and those that were to be woken find out by their heartbeat.
fn released(answer: &Value, since: Moment) -> Released {
    let lost = |reason| Released { next: Vec::new(), lost: Some(reason) };
    let words = match answer {
        Value::Array(words) => words,
        Value::Int(0) => return lost(LossReason::Gone),
        Value::BulkString(reason) => return lost(broken(reason)),
        _ => return Released::default(),
    };
    let granted = words.chunks_exact(2);
    let (mut successors, lost) = match granted.remainder() {
        [Value::Array(successors)] => (ids(successors).unwrap_or_default(), None),
        [Value::Int(0)] => (Vec::new(), Some(LossReason::Gone)),
        _ => (Vec::new(), None),
    };
    let next = granted.filter_map(|granted| {
        let (id, token) = (text(&granted[0])?.to_owned(), token_of(&granted[1])?);
        Some(Promoted { id, token, since, successors: std::mem::take(&mut successors) })
    });
    Released { next: next.collect(), lost }
}

/// A place in the queue, as a script tells it.
fn queued(place: &Value, next: &Value, stamp: &Value) -> Option<Asked> {
    let place = usize::try_from(number(place)?).ok()?;
    Some(Asked::Queued { place, next: span(next)?, stamp: number(stamp)? })
}

/// The loss of a claim that was broken for this reason.
fn broken(reason: &[u8]) -> LossReason {
    LossReason::Broken { reason: String::from_utf8_lossy(reason).into_owned() }
}

/// Each with a blank behind it, by which a script finds whole ids only.
fn with_blanks(ids: &[String]) -> String {
    ids.iter().flat_map(|id| [id, " "]).collect()
}

/// Yes and no, a letter each.
fn flags<const N: usize>(set: [bool; N]) -> [u8; N] {
    set.map(|set| if set { b'1' } else { b'0' })
}
