//! Asking all nodes for a claim, once.
//!
//! ```text
//!   ask all at once ──► yes from a majority ──► token, if it is not good already ──► granted
//!          │                                        │ too few can be raised
//!          │ a majority is out of reach             ▼
//!          └──────────────────────────────────► undo ──► busy, split, slow, or too few nodes
//! ```
//!
//! One who was told by a node that the name may be free asks that node first, and the others only if it says
//! yes: so were all who wait, of whom one gets that node's vote. Else they would take votes from one another at
//! every node, and undo them.
//!
//! Whatever the outcome, nodes that have not answered by then are dealt with when they do: what they
//! took is kept in step with the others, or undone, for as long as they may keep it.

use super::holding::{Holding, Phase};
use super::node::Ballot;
use super::nodes::{Nodes, TokenWay};
use super::round::{Rest, Round};
use super::tokens::{Proposal, has_room};
use crate::backend::{FencingToken, Moment};
use crate::error::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What came of it.
#[derive(Debug)]
pub(super) enum Attempt {
    Granted {
        token: Option<FencingToken>,
        sent: Moment,
    },
    /// Someone else has it, for so much longer unless it is renewed.
    Busy(Option<Duration>),
    /// Nobody has a majority: several ask at once.
    Split,
    /// Too few answered in time; those that did not may yet, and are to be asked again. If that is not
    /// waited for, this is the error.
    Slow(Error),
}

/// The votes so far.
#[derive(Debug, Default)]
struct Tally {
    yes: Vec<usize>,
    floors: Vec<u64>,
    clocks: Vec<u64>,
    /// Those that have the claim without a vote.
    void: Vec<usize>,
    no: Vec<(String, Option<Duration>)>,
    failed: Vec<(usize, Error)>,
    /// Why nodes cannot vote.
    reasons: Vec<(usize, String)>,
    /// How many have not answered.
    open: usize,
    /// How many were not asked, because they have not answered what they were asked before.
    silent: usize,
}

/// Which attempt it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Which {
    /// Its number.
    pub(super) time: u32,
    /// A node that is asked before the others. If it has another claim, that is the answer: not to be
    /// believed each time, as it may have a claim that no other node has.
    pub(super) first: Option<usize>,
}

/// Asks all nodes for the claim.
pub(super) async fn attempt(
    nodes: &Arc<Nodes>,
    holding: &Arc<Holding>,
    Which { time, first }: Which,
    rest: &mut Rest,
) -> Result<Attempt> {
    let (majority, timeout) = (nodes.majority(), nodes.options.timeout);
    let since = nodes.since_now(&holding.claim);
    let sent = since.sent;
    let proposal = match nodes.way {
        TokenWay::Floors => nodes.tokens.proposal(),
        TokenWay::None | TokenWay::Sequences => Proposal::default(),
    };
    holding.enter(Phase::Asking(time));
    let (mut round, mut tally) = (Round::new(sent + timeout), Tally::default());
    // Without a majority of nodes that answer, those that did not are asked too, whatever it costs.
    let silent = nodes.all.iter().filter(|node| node.silence.is_silent()).count();
    let force = nodes.all.len() - silent < majority;
    let ask = |number: usize, round: &mut Round<Ballot>, tally: &mut Tally| {
        let node = &nodes.all[number];
        let admission = node.silence.admit(force);
        let Some(admission) = admission.filter(|_| !holding.is_busy(number)) else {
            tally.reasons.push((number, "it does not answer".into()));
            tally.silent += 1;
            return;
        };
        holding.begin(number);
        tally.open += 1;
        let ballot = node.clone().ask(holding.clone(), proposal, since, majority, admission);
        round.ask(number, ballot);
    };
    let first =
        first.filter(|first| !nodes.all[*first].silence.is_silent() && !holding.is_busy(*first));
    if let Some(first) = first {
        ask(first, &mut round, &mut tally);
        if let Some((number, ballot)) = round.next().await {
            tally.count(holding, number, ballot, sent);
        }
        if let Some((_, left)) = tally.no.first() {
            return Ok(Attempt::Busy(*left));
        }
    }
    for number in (0..nodes.all.len()).filter(|number| Some(*number) != first) {
        ask(number, &mut round, &mut tally);
    }
    while !tally.is_decided(majority) {
        let Some((number, ballot)) = round.next().await else { break };
        tally.count(holding, number, ballot, sent);
    }
    let won = tally.yes.len() >= majority;
    let token = match won {
        true => token_for(nodes, holding, &tally, proposal.token, rest).await,
        false => None,
    };
    let granted = token.is_some();
    holding.enter(if granted { Phase::Held(time) } else { Phase::Asking(time + 1) });
    let late = Late { nodes: nodes.clone(), holding: holding.clone(), time, sent };
    tally.dispose_failed(&late);
    let in_time = |number: &usize| (*number, format!("it did not answer within {timeout:?}"));
    tally.reasons.extend(round.unanswered().iter().map(in_time));
    let answering = late.clone();
    round.finish(nodes.all.clone(), rest, move |number, ballot| {
        answering.hear(number, ballot);
    });
    if let Some(token) = token {
        return Ok(Attempt::Granted { token, sent });
    }
    undo(&late, &tally, rest).await;
    // Nobody else has it: that it was not granted is no reason to call it taken.
    if won { Ok(Attempt::Slow(nodes.too_slow())) } else { tally.outcome(nodes) }
}

impl Tally {
    /// Whether more answers would change nothing: the claim is granted, or refused by nodes of which a
    /// majority can vote. If it is not known yet that so many can, all are waited for: that is an error
    /// then, which names each of those that cannot.
    fn is_decided(&self, majority: usize) -> bool {
        let (yes, can) = (self.yes.len(), self.yes.len() + self.no.len());
        let refused = yes + self.open < majority && can >= majority;
        self.open == 0 || yes >= majority || refused
    }

    fn count(&mut self, holding: &Holding, number: usize, ballot: Ballot, sent: Moment) {
        self.open -= 1;
        match ballot {
            Ballot::Yes { floor, clock } => {
                holding.taken(number, sent);
                self.yes.push(number);
                self.floors.push(floor);
                self.clocks.extend(clock);
            }
            Ballot::Void(why) => {
                holding.taken(number, sent);
                self.void.push(number);
                self.reasons.push((number, why));
            }
            Ballot::No { holder, left } => {
                holding.end(number);
                self.no.push((holder, left));
            }
            // Its request counts as under way until the claim is known to be gone there.
            Ballot::Failed(error) => {
                self.reasons.push((number, error.to_string()));
                self.failed.push((number, error));
            }
        }
    }

    /// Sees to the nodes of which it is not known what they have.
    fn dispose_failed(&self, late: &Late) {
        self.failed.iter().for_each(|(number, error)| late.failed(*number, error));
    }

    /// What it comes to that the claim was not granted.
    fn outcome(mut self, nodes: &Nodes) -> Result<Attempt> {
        let (all, majority) = (nodes.all.len(), nodes.majority());
        // A node that refuses for a reason of its own will not change its mind by being asked again.
        let refused = |error: &Error| error.kind() != ErrorKind::Unavailable;
        if let Some(at) = self.failed.iter().position(|(_, error)| refused(error)) {
            return Err(self.failed.swap_remove(at).1);
        }
        let can = self.yes.len() + self.no.len();
        // Where it was decided without them, those that have not answered yet may well vote.
        let open = if self.is_decided(majority) { 0 } else { self.open };
        let undecided = if open > 0 { 0 } else { self.open };
        let (unable, slow) = (all - can - undecided, open + self.silent);
        if unable > all - majority {
            let error = nodes.too_few(all - unable, &self.reasons);
            return if unable - slow > all - majority {
                Err(error)
            } else {
                Ok(Attempt::Slow(error))
            };
        }
        let unknown = all - can;
        let mut holders: HashMap<&str, (usize, Option<Duration>)> = HashMap::new();
        for (holder, left) in &self.no {
            let entry = holders.entry(holder).or_default();
            entry.0 += 1;
            entry.1 = entry.1.max(*left);
        }
        let most = holders.values().max_by_key(|(count, _)| *count);
        Ok(match most {
            Some((count, left)) if count + unknown >= majority => Attempt::Busy(*left),
            _ => Attempt::Split,
        })
    }
}

/// The token of a claim that has its votes: `None` when too few nodes could be made to remember it,
/// `Some(None)` when there is none to make.
async fn token_for(
    nodes: &Arc<Nodes>,
    holding: &Arc<Holding>,
    tally: &Tally,
    propose: Option<FencingToken>,
    rest: &mut Rest,
) -> Option<Option<FencingToken>> {
    match nodes.way {
        TokenWay::None => return Some(None),
        TokenWay::Sequences => return sequenced(nodes, holding, tally, rest).await.map(Some),
        TokenWay::Floors => {}
    }
    let highest = tally.floors.iter().copied().max().unwrap_or(0);
    nodes.tokens.learn(highest, tally.clocks.clone(), Moment::now());
    if let Some(token) = propose {
        let remember = tally.floors.iter().filter(|floor| has_room(token, **floor)).count();
        if remember >= nodes.majority() {
            return Some(Some(token));
        }
    }
    let token = nodes.tokens.next();
    let mut round = nodes.round();
    for number in &tally.yes {
        round.ask(*number, nodes.all[*number].clone().raise(holding.claim.clone(), token));
    }
    let mut raised = 0;
    while raised < nodes.majority() {
        let (_, done) = round.next().await?;
        raised += usize::from(done);
    }
    round.finish(nodes.all.clone(), rest, |_, _| {});
    Some(Some(token))
}

/// The token where nodes can only count: the largest of the numbers that a majority gives, once a
/// majority will give larger ones only. Asked for after the votes, so that it comes after the writes of
/// the holder before.
async fn sequenced(
    nodes: &Arc<Nodes>,
    holding: &Arc<Holding>,
    tally: &Tally,
    rest: &mut Rest,
) -> Option<FencingToken> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut floor = u64::try_from(since_epoch.as_micros()).unwrap_or(0);
    // In the second round every node that gave less is brought up to the largest.
    for _ in 0..2 {
        let mut round = nodes.round();
        for number in &tally.yes {
            round.ask(*number, nodes.all[*number].clone().reserve(holding.claim.clone(), floor));
        }
        let mut numbers = Vec::new();
        while numbers.len() < nodes.majority() {
            numbers.extend(round.next().await?.1);
        }
        round.finish(nodes.all.clone(), rest, |_, _| {});
        let largest = numbers.iter().copied().max()?;
        if numbers.iter().all(|number| *number == largest) {
            return FencingToken::new(largest);
        }
        floor = largest + 1;
    }
    // What a majority was told not to give any more is this claim's.
    FencingToken::new(floor - 1)
}

/// Removes the claim from the nodes that took it; what takes longer than a vote may is finished in the
/// background.
async fn undo(late: &Late, tally: &Tally, rest: &mut Rest) {
    let Late { nodes, holding, .. } = late;
    let mut round = nodes.round();
    for number in tally.yes.iter().chain(&tally.void) {
        holding.begin(*number);
        let (node, claim) = (nodes.all[*number].clone(), holding.claim.clone());
        round.ask(*number, async move { node.withdraw(&claim).await });
    }
    let done = |late: &Late, number: usize, outcome: Result<()>| match outcome {
        Ok(()) => late.holding.end(number),
        Err(_) => late.forget(number),
    };
    while let Some((number, outcome)) = round.next().await {
        done(late, number, outcome);
    }
    let later = late.clone();
    round.finish(nodes.all.clone(), rest, move |number, outcome| {
        done(&later, number, outcome);
    });
}

/// What to do with answers that come after the decision.
#[derive(Clone)]
pub(super) struct Late {
    pub(super) nodes: Arc<Nodes>,
    pub(super) holding: Arc<Holding>,
    pub(super) time: u32,
    pub(super) sent: Moment,
}

impl Late {
    fn hear(&self, number: usize, ballot: Ballot) {
        match ballot {
            Ballot::Yes { .. } | Ballot::Void(_) => {
                if !self.holding.taken_late(number, self.time, self.sent) {
                    self.forget(number);
                }
            }
            Ballot::No { .. } => self.holding.end(number),
            Ballot::Failed(error) => self.failed(number, &error),
        }
    }

    /// A node that did not say what it has. Of a claim that is held, the next renewal or the release
    /// finds out.
    pub(super) fn failed(&self, number: usize, error: &Error) {
        if error.leaves_doubt() && self.holding.phase() != Phase::Held(self.time) {
            self.forget(number);
        } else {
            self.holding.end(number);
        }
    }

    /// Removes the claim from a node, for as long as that may keep it. Its request is over then.
    pub(super) fn forget(&self, number: usize) {
        let (node, holding) = (self.nodes.all[number].clone(), self.holding.clone());
        let end = Moment::now() + holding.claim.ttl;
        self.nodes.background().spawn(async move {
            node.forget_held(&holding, end).await;
            holding.is_forgotten(number);
        });
    }
}
