//! A claim that a majority of the nodes has.
//!
//! | what a node says to a renewal | counts | and |
//! |---|---|---|
//! | ours, as long as we thought | yes | |
//! | ours, for much longer or shorter than we thought | no | its clock jumped |
//! | ours, but it was restarted lately | no | others do not count it either until it may vote |
//! | nothing; retaken, never had it before | yes | a node that was away is back |
//! | nothing; retaken, had it before | no, from the next time on | it forgot: kept from others at once |
//! | another's | no | |
//! | no answer | not known | |

use super::attempt::Late;
use super::holding::{Holding, Phase, clock_jump};
use super::local_handover::{self, Handover, Next, Present};
use super::nodes::Nodes;
use super::round::{Rest, run};
use super::turns::Place;
use crate::backend::{Alarm, GaveBack, Kept, Lease, LossReason, Moment, Release, Standing};
use crate::error::{ErrorKind, Result};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// A held claim.
#[derive(Debug)]
pub(super) struct QuorumLease {
    held: Held,
    /// Keeps the keeper's other claims on the name from asking.
    place: Option<Place>,
    /// It was given back once, which may have to be repeated.
    given_back: bool,
    /// It passed to another claim: nothing is left to give back.
    passed_on: bool,
}

/// What is needed to keep it and to give it back.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) nodes: Arc<Nodes>,
    pub(super) holding: Arc<Holding>,
}

/// What nodes said to a renewal.
#[derive(Debug, Default)]
struct Answers {
    /// How many count.
    yes: usize,
    /// How many said something that does not count.
    no: usize,
    open: usize,
    /// Those that have the claim again.
    retaken: Vec<usize>,
    broken: Option<String>,
    /// Whether all that do not count have lost the claim.
    only_gone: bool,
    reasons: Vec<(usize, String)>,
}

impl QuorumLease {
    /// Of a claim that was just granted, by the nodes or by the claim before it.
    pub(super) fn granted(held: Held, place: Place) -> Self {
        Self { held, place: Some(place), given_back: false, passed_on: false }
    }

    /// Of a claim that any keeper was granted. What a node lacks is not taken anew: that is for the
    /// holder, who knows that it did not give the claim back.
    pub(super) fn resumed(nodes: Arc<Nodes>, holding: Arc<Holding>) -> Self {
        let held = Held { nodes, holding };
        Self { held, place: None, given_back: false, passed_on: false }
    }

    /// Passes the name to the next claim of this keeper, if there is one and nothing speaks against it;
    /// whether it did, and if not, whether others should come first. The nodes are told afterwards.
    fn passes_on(&mut self, how: &Release<'_>) -> Next {
        let Held { nodes, holding } = &self.held;
        let (Some(place), true) = (&mut self.place, nodes.passes && holding.is_kept()) else {
            return Next::GiveBack { yields: false };
        };
        let ttl = holding.claim.ttl;
        let mut next = holding.chain.next(ttl, || place.next_offer(ttl));
        if let Next::Pass { offer, token, sent, tell } = &mut next {
            holding.unwatch();
            how.over();
            let holds = place.stop_holding();
            let handover = Handover::new(self.held.clone(), *token, *sent, holds);
            // If nobody is there to take it, it is given back as it goes.
            offer.hand(handover);
            if *tell {
                nodes.background().spawn(local_handover::tell(self.held.clone()));
            }
            self.place = None;
            self.passed_on = true;
        }
        next
    }
}

impl Held {
    fn time(&self) -> u32 {
        match self.holding.phase() {
            Phase::Held(time) => time,
            Phase::Asking(_) | Phase::Over => 0,
        }
    }

    /// What the node's answer to a renewal that was sent at `sent` is worth.
    fn weigh(
        &self,
        answers: &mut Answers,
        number: usize,
        sent: Moment,
        answer: Result<(Kept, Option<String>)>,
    ) {
        answers.open -= 1;
        let counted = self.holding.counted(number);
        let (kept, objection) = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.holding.end(number);
                return answers.reasons.push((number, error.to_string()));
            }
        };
        let why = match kept {
            Kept::Broken(reason) => {
                self.holding.end(number);
                answers.no += 1;
                answers.broken = Some(reason);
                return;
            }
            Kept::Others => {
                self.holding.end(number);
                Some("another has it there".to_owned())
            }
            Kept::Retaken => {
                self.holding.taken(number, sent);
                answers.retaken.push(number);
                let forgot = || "it had forgotten the claim".to_owned();
                objection.clone().or_else(|| counted.map(|_| forgot()))
            }
            Kept::Ours { left } => {
                self.holding.taken(number, sent);
                let ttl = self.holding.claim.ttl;
                let jump = || clock_jump(ttl, counted?, sent, left?);
                let jumped = |by| format!("its clock jumped by {by:.1?} or so");
                objection.clone().or_else(|| jump().map(jumped))
            }
        };
        match why {
            None => answers.yes += 1,
            Some(why) => {
                let gone = objection.is_none() && matches!(kept, Kept::Others | Kept::Retaken);
                answers.only_gone &= gone;
                answers.no += 1;
                answers.reasons.push((number, why));
            }
        }
    }

    /// What nodes say that answer when the renewal is decided already.
    fn hear_late(
        &self,
        sent: Moment,
    ) -> impl Fn(usize, Result<(Kept, Option<String>)>) + Send + 'static {
        let (nodes, holding) = (self.nodes.clone(), self.holding.clone());
        let late = Late { nodes, holding, time: self.time(), sent };
        move |number, answer| match answer {
            Ok((Kept::Ours { .. } | Kept::Retaken, _)) => {
                if !late.holding.taken_late(number, late.time, late.sent) {
                    late.forget(number);
                }
            }
            Ok((Kept::Others | Kept::Broken(_), _)) => late.holding.end(number),
            Err(error) => late.failed(number, &error),
        }
    }

    /// The claim is lost: what was retaken from nobody is given back.
    fn lost(&self, answers: &Answers, reason: LossReason) -> Standing {
        let (nodes, holding) = (self.nodes.clone(), self.holding.clone());
        let late = Late { nodes, holding, time: self.time(), sent: Moment::now() };
        for number in answers.retaken.iter().filter(|number| self.holding.begin(**number)) {
            late.forget(*number);
        }
        Standing::Lost(reason)
    }

    fn no_majority(&self, answers: &Answers) -> LossReason {
        if answers.only_gone {
            return LossReason::Gone;
        }
        let shown =
            |(number, why): &(usize, String)| format!("{}: {why}", self.nodes.all[*number].shown);
        let said: Vec<_> = answers.reasons.iter().map(shown).collect();
        LossReason::NoMajority { reason: said.join("; ") }
    }

    /// Asks all nodes to keep the claim, when nobody else does.
    async fn renew(&self, rest: &mut Rest) -> Result<Standing> {
        let alone = self.holding.chain.asking.lock().await;
        self.ask_to_keep(&alone, rest).await
    }

    /// Asks all nodes to keep the claim, and tells them who of this keeper has it.
    pub(super) async fn ask_to_keep(
        &self,
        _alone: &tokio::sync::MutexGuard<'_, ()>,
        rest: &mut Rest,
    ) -> Result<Standing> {
        let chain = &self.holding.chain;
        let (present, sent) = (chain.present(), Moment::now());
        let number = present.number;
        let standing = self.ask_to_keep_for(present, rest).await;
        match &standing {
            Ok(Standing::Lost(_)) => chain.ends(),
            Ok(_) => chain.is_vouched_for(sent, number),
            Err(_) => chain.is_doubtful(),
        }
        standing
    }

    async fn ask_to_keep_for(&self, present: Present, rest: &mut Rest) -> Result<Standing> {
        let (majority, all) = (self.nodes.majority(), self.nodes.all.len());
        let since = self.nodes.since_now(&self.holding.claim);
        let mut round = self.nodes.patient_round(&self.holding.claim);
        let mut answers = Answers { only_gone: true, ..Answers::default() };
        let silent = self.nodes.all.iter().filter(|node| node.silence.is_silent()).count();
        for (number, node) in self.nodes.all.iter().enumerate() {
            let admission = node.silence.admit(all - silent < majority);
            let Some(admission) = admission.filter(|_| self.holding.begin(number)) else {
                answers.reasons.push((number, "it does not answer".into()));
                continue;
            };
            answers.open += 1;
            let (holding, present) = (self.holding.clone(), present.clone());
            round.ask(number, node.clone().keep(holding, present, since, majority, admission));
        }
        while answers.open > 0 && answers.yes < majority && all - answers.no >= majority {
            let Some((number, answer)) = round.next().await else { break };
            self.weigh(&mut answers, number, since.sent, answer);
        }
        let late = self.hear_late(since.sent);
        round.finish(self.nodes.all.clone(), rest, late);
        if let Some(reason) = answers.broken.take() {
            return Ok(self.lost(&answers, LossReason::Broken { reason }));
        }
        if answers.yes >= majority {
            return Ok(match self.holding.valid_for() {
                span if span < self.holding.claim.ttl => Standing::HeldFor(span),
                _ => Standing::Held,
            });
        }
        if all - answers.no < majority {
            let reason = self.no_majority(&answers);
            return Ok(self.lost(&answers, reason));
        }
        Err(self.nodes.too_few(answers.yes, &answers.reasons))
    }

    /// Gives the claim back at all nodes; for `stay` nobody else may have the name yet.
    pub(super) async fn release(&self, stay: Duration, rest: &mut Rest) -> Result<()> {
        self.holding.chain.ends();
        // Whoever tells the nodes who has it is waited for: what it finds must not be taken anew.
        let _alone = self.holding.chain.asking.lock().await;
        if let Some(token) = self.holding.chain.present().token {
            self.nodes.tokens.learn(token.get(), Vec::new(), Moment::now());
        }
        // From here on late answers undo what they find.
        self.holding.enter(Phase::Over);
        let (majority, all) = (self.nodes.majority(), self.nodes.all.len());
        let mut round = self.nodes.patient_round(&self.holding.claim);
        let silent = self.nodes.all.iter().filter(|node| node.silence.is_silent()).count();
        let end = self.holding.end_of_lease();
        let (nodes, holding) = (self.nodes.clone(), self.holding.clone());
        let late = Late { nodes, holding, time: 0, sent: Moment::now() };
        let mut asked = 0;
        for (number, node) in self.nodes.all.iter().enumerate() {
            if self.holding.given_back(number).is_some() || !self.holding.begin(number) {
                continue;
            }
            match node.silence.admit(all - silent < majority) {
                Some(admission) => {
                    asked += 1;
                    let holding = self.holding.clone();
                    round.ask(number, node.clone().give_back(holding, stay, admission));
                }
                None => give_back_later(&late, number, stay, end),
            }
        }
        let settle = |late: &Late, number: usize, answer: Result<GaveBack>| match answer {
            Ok(had) => late.holding.is_given_back(number, had),
            Err(_) => late.holding.end(number),
        };
        while asked > 0 && !is_settled(&self.holding, all, majority) {
            let Some((number, answer)) = round.next().await else { break };
            asked -= 1;
            settle(&late, number, answer);
        }
        let (had, lacked, _) = standing(&self.holding, all);
        if had < majority && all - lacked >= majority {
            let later = late.clone();
            round.finish(self.nodes.all.clone(), rest, move |number, answer| {
                settle(&later, number, answer);
            });
            let reasons = [(0, "too few nodes answered the release".to_owned())];
            return Err(self.nodes.too_few(had, &reasons));
        }
        let later = late.clone();
        round.finish(self.nodes.all.clone(), rest, move |number, answer| match answer {
            Ok(had) => later.holding.is_given_back(number, had),
            Err(_) => give_back_later(&later, number, stay, end),
        });
        for number in 0..all {
            if self.holding.given_back(number).is_none() && self.holding.begin(number) {
                give_back_later(&late, number, stay, end);
            }
        }
        if had >= majority { Ok(()) } else { Err(LossReason::Gone.to_error()) }
    }
}

#[async_trait]
impl Lease for QuorumLease {
    async fn renew(&mut self) -> Result<Standing> {
        let held = self.held.clone();
        let work = async move {
            let mut rest = Rest::default();
            (held.renew(&mut rest).await, rest)
        };
        run(&self.held.nodes, work).await
    }

    /// Passes the name on if it may, else gives it back. A repetition chooses no other way than the first
    /// attempt: that could give the name to two.
    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        let again = std::mem::replace(&mut self.given_back, true);
        let next = match !again && how.stay().is_zero() {
            true => self.passes_on(how),
            false => Next::GiveBack { yields: false },
        };
        if self.passed_on {
            return Ok(());
        }
        let (held, stay) = (self.held.clone(), how.stay());
        let work = async move {
            let mut rest = Rest::default();
            (held.release(stay, &mut rest).await, rest)
        };
        let yields = matches!(next, Next::GiveBack { yields: true });
        let released = run(&self.held.nodes, work).await;
        if released.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::Lost) {
            // The name is free, or another's.
            let place = self.place.take();
            if let Some(place) = place.filter(|_| yields && self.held.holding.is_awaited()) {
                place.yield_to_others();
            }
        }
        released
    }

    fn watch(&mut self, alarm: Alarm) {
        self.held.holding.watch(alarm);
    }
}

/// How many nodes had the claim when it was given back, how many did not, and how many have not said.
fn standing(holding: &Holding, all: usize) -> (usize, usize, usize) {
    let said = (0..all).map(|number| holding.given_back(number));
    let (mut had, mut lacked, mut open) = (0, 0, 0);
    for answer in said {
        match answer {
            Some(true) => had += 1,
            Some(false) => lacked += 1,
            None => open += 1,
        }
    }
    (had, lacked, open)
}

/// Whether it is known that a majority had the claim, or that none did.
fn is_settled(holding: &Holding, all: usize, majority: usize) -> bool {
    let (had, lacked, _) = standing(holding, all);
    had >= majority || all - lacked < majority
}

/// Gives the claim back at a node that does not answer, until it does or has dropped the claim by
/// itself. The request counts as under way until then.
fn give_back_later(late: &Late, number: usize, stay: Duration, end: Moment) {
    let (node, holding) = (late.nodes.all[number].clone(), late.holding.clone());
    late.nodes.background().spawn(async move {
        // What is left of `stay` by then is for the nodes that answered to keep.
        if stay.is_zero() {
            node.forget_held(&holding, end).await;
        }
        holding.is_forgotten(number);
    });
}
