//! One node: a backend, what is asked of it, and whether what it says counts as a vote.
//!
//! A [`Voter`] is asked everything. Any other backend is asked what every backend can do, and what it
//! cannot tell is done without.

use super::holding::Holding;
use super::local_handover::Present;
use super::silence::{Admission, Silence};
use super::tokens::Proposal;
use crate::backend::support::sync::lock;
use crate::backend::{
    Alarm, Backend, Claim, ClaimId, FencingToken, GaveBack, Kept, Lease, LossReason, Moment,
    NodeLife, Owner, Patience, Release, Reserve, Reserved, Standing, Ticket, Vote, Voter,
};
use crate::error::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One node.
pub(super) struct Node {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) silence: Silence,
    number: usize,
    /// For people.
    pub(super) shown: String,
    /// The leases of a backend that is no [`Voter`].
    leases: Mutex<HashMap<ClaimId, Box<dyn Lease>>>,
    seen: Mutex<Seen>,
    /// The ids of all the nodes' lives, by number.
    ids: Arc<Mutex<Vec<Option<String>>>>,
}

/// What was seen of a node's life.
#[derive(Debug, Default)]
struct Seen {
    /// The id of the life it is in, and when it was last seen in it.
    life: Option<(Option<String>, Moment)>,
    /// Whether it said, whenever it was seen in that life, that it keeps what it answered.
    remembers: bool,
    /// When it was last seen in the life before that: it was restarted later.
    restarted_after: Option<Moment>,
    /// When it was last seen in a life that did not say so, before another.
    forgot_after: Option<Moment>,
    /// What was last said of it in the log.
    logged: Option<String>,
}

/// What a node made of a claim.
#[derive(Debug)]
pub(super) enum Ballot {
    /// It has the claim, and that counts.
    Yes { floor: u64, clock: Option<u64> },
    /// It has the claim, which does not count, for this reason.
    Void(String),
    /// It has another.
    No { holder: String, left: Option<Duration> },
    /// It is not known what it has.
    Failed(Error),
}

/// From when on a vote counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Since {
    /// A moment before the request was sent.
    pub(super) sent: Moment,
    /// For how long the node must have been up by then.
    pub(super) least_uptime: Duration,
}

impl Node {
    pub(super) fn new(
        backend: Arc<dyn Backend>,
        number: usize,
        ids: Arc<Mutex<Vec<Option<String>>>>,
    ) -> Arc<Self> {
        let (silence, shown) = (Silence::new(), backend.to_string());
        let (leases, seen) = Default::default();
        Arc::new(Self { backend, silence, number, shown, leases, seen, ids })
    }

    fn voter(&self) -> Option<&dyn Voter> {
        self.backend.voter()
    }

    /// Asks for the claim.
    pub(super) async fn ask(
        self: Arc<Self>,
        holding: Arc<Holding>,
        Proposal { token, wants_clock }: Proposal,
        since: Since,
        majority: usize,
        _admission: Admission,
    ) -> Ballot {
        let vote = match self.voter() {
            Some(voter) => voter.ask(&holding.claim, token, wants_clock).await,
            None => self.take(&holding, majority).await,
        };
        match self.heard(vote) {
            Ok(Vote::Yes { floor, clock }) => match self.objection(since).await {
                None => Ballot::Yes { floor, clock: Some(clock).filter(|clock| *clock > 0) },
                Some(why) => Ballot::Void(why),
            },
            Ok(Vote::No { holder, left }) => Ballot::No { holder, left },
            Err(error) => Ballot::Failed(error),
        }
    }

    /// Keeps the claim, for whoever has it now; and why that does not count, if it does not.
    pub(super) async fn keep(
        self: Arc<Self>,
        holding: Arc<Holding>,
        present: Present,
        since: Since,
        majority: usize,
        _admission: Admission,
    ) -> Result<(Kept, Option<String>)> {
        let (claim, token) = (&present.claim, present.token);
        let kept = match self.voter().filter(|_| holding.anew) {
            Some(voter) => match voter.passing().filter(|_| claim.id != holding.claim.id) {
                Some(passing) => passing.pass(holding.claim.id, claim, token).await,
                None => voter.keep(claim, token).await,
            },
            None => self.renew(&holding, majority).await,
        };
        let kept = self.heard(kept)?;
        let objection = match kept {
            Kept::Ours { .. } | Kept::Retaken => self.objection(since).await,
            Kept::Others | Kept::Broken(_) => None,
        };
        Ok((kept, objection))
    }

    /// Raises the node's floor, if it has the claim.
    pub(super) async fn raise(self: Arc<Self>, claim: Arc<Claim>, token: FencingToken) -> bool {
        let Some(voter) = self.voter() else { return false };
        let raised = voter.raise(&claim, token).await;
        self.heard(raised).unwrap_or(false)
    }

    /// A number that the node gave nobody before, and not below `floor`; where it can count.
    pub(super) async fn reserve(self: Arc<Self>, claim: Arc<Claim>, floor: u64) -> Option<u64> {
        let wish = Reserve::new(1).from(floor);
        let reserved = self.backend.sequencer()?.reserve(&claim.name, &wish).await;
        self.heard(reserved.and_then(Reserved::first)).ok()
    }

    /// Gives the claim back, whoever has it now.
    pub(super) async fn give_back(
        self: Arc<Self>,
        holding: Arc<Holding>,
        stay: Duration,
        _admission: Admission,
    ) -> Result<GaveBack> {
        let claim = &holding.claim;
        let passed = holding.chain.present().number > 0;
        if let Some(passing) = self.voter().and_then(Voter::passing).filter(|_| passed) {
            return self.heard(passing.give_back(&claim.name, claim.id, stay).await);
        }
        let lease = lock(&self.leases).remove(&claim.id);
        // By its ticket, which does not say who its owner is.
        let lease = lease.or_else(|| self.backend.lease_of(&Ticket::of(claim)));
        let answer = match lease {
            Some(mut lease) => {
                let answer = lease.release(&Release::after(stay)).await;
                if answer.as_ref().is_err_and(|error| error.kind() != ErrorKind::Lost) {
                    // To be given back again.
                    lock(&self.leases).insert(claim.id, lease);
                }
                answer
            }
            None => self.backend.withdraw(&self.as_asked(claim)).await,
        };
        match self.heard(answer) {
            Ok(()) => Ok(GaveBack::Had { awaited: false }),
            Err(error) if error.kind() == ErrorKind::Lost => Ok(GaveBack::Lacked),
            Err(error) => Err(error),
        }
    }

    /// Removes what the claim may have left, once.
    pub(super) async fn withdraw(&self, claim: &Claim) -> Result<()> {
        lock(&self.leases).remove(&claim.id);
        self.heard(self.backend.withdraw(&self.as_asked(claim)).await)
    }

    /// Removes what the claim may have left, for as long as the node may keep it.
    pub(super) async fn forget(self: Arc<Self>, claim: Arc<Claim>, end: Moment) {
        self.remove(claim, false, end).await;
    }

    /// As [`forget`](Self::forget), of a claim that was asked for here, or of one that a ticket is of.
    pub(super) async fn forget_held(self: Arc<Self>, holding: &Holding, end: Moment) {
        self.remove(holding.claim.clone(), !holding.anew, end).await;
    }

    async fn remove(self: Arc<Self>, claim: Arc<Claim>, by_ticket: bool, end: Moment) {
        let mut pause = Duration::from_millis(20);
        while let Some(_admission) = self.silence.admitted(end).await {
            let removed = match by_ticket {
                true => self.give_up_ticket(&claim).await,
                false => self.withdraw(&claim).await,
            };
            if removed.is_ok() || end.remaining().is_zero() {
                return;
            }
            tokio::time::sleep(pause.min(end.remaining())).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Gives back what a ticket is of. Not by [`withdraw`](Self::withdraw): the name may have passed on from
    /// that claim, and what the node then has under its id is another's.
    async fn give_up_ticket(&self, claim: &Claim) -> Result<()> {
        let Some(mut lease) = self.backend.lease_of(&Ticket::of(&self.as_asked(claim))) else {
            return Ok(());
        };
        match self.heard(lease.release(&Release::now()).await) {
            Err(error) if error.kind() == ErrorKind::Lost => Ok(()),
            other => other,
        }
    }

    /// Which life it is in.
    pub(super) async fn life(&self) -> Result<NodeLife> {
        match self.voter() {
            Some(voter) => voter.life().await,
            None => self.backend.incarnation().await.map(|id| NodeLife {
                id,
                // It does not tell, and is trusted until it is seen to be another.
                up_for: Some(Duration::MAX),
                ..NodeLife::default()
            }),
        }
    }

    /// Why the node's votes do not count, if they do not.
    pub(super) async fn objection(&self, since: Since) -> Option<String> {
        let life = self.life().await;
        let objection = match life {
            Ok(life) => self.judge(&life, since),
            Err(error) => Some(format!("it does not tell since when it is up: {error}")),
        };
        self.log(objection.as_ref());
        objection
    }

    fn judge(&self, life: &NodeLife, since: Since) -> Option<String> {
        if let Some(unfit) = &life.unfit {
            return Some(unfit.clone());
        }
        let up_for = self.up_for(life);
        if let Some(twin) = self.twin(life) {
            return Some(format!("it is the same server as node {twin}"));
        }
        if since.least_uptime.is_zero() {
            return None;
        }
        let Some(up_for) = up_for else {
            return Some("it does not tell how long it has been up (INFO)".into());
        };
        // By the time that it was asked.
        let up_for = up_for.saturating_sub(Moment::now().since(since.sent));
        (up_for < since.least_uptime).then(|| {
            format!(
                "it was started {:.0?} ago and may have forgotten claims: it votes after {:.0?} \
                 (min_uptime)",
                up_for, since.least_uptime
            )
        })
    }

    /// For how long it has had what it answered. If it forgets with a restart, that is how long it has
    /// been up: as it says itself, and no longer than since it was seen in an earlier life, because its
    /// clock may be wrong. If it does not, that is as long as it shows, or as it has been up; and no
    /// longer than since it was last seen in a life in which it did: settings that came with a restart do
    /// not bring back what was forgotten by it.
    fn up_for(&self, life: &NodeLife) -> Option<Duration> {
        let (now, mut seen) = (Moment::now(), lock(&self.seen));
        let another = seen.life.as_ref().filter(|(known, _)| *known != life.id).map(|(_, at)| *at);
        if another.is_some() {
            seen.restarted_after = another;
            seen.forgot_after = another.filter(|_| !seen.remembers).or(seen.forgot_after);
        }
        let known = seen.life.is_some() && another.is_none();
        seen.remembers = life.remembers && (seen.remembers || !known);
        match &mut seen.life {
            Some((_, at)) if known => *at = now,
            other => *other = Some((life.id.clone(), now)),
        }
        let since = |after: Option<Moment>| after.map_or(Duration::MAX, |after| now.since(after));
        match seen.remembers {
            true => life.kept_for.max(life.up_for).map(|kept| kept.min(since(seen.forgot_after))),
            false => life.up_for.map(|up_for| up_for.min(since(seen.restarted_after))),
        }
    }

    /// Another node that is this very server, by its number counted from 1.
    fn twin(&self, life: &NodeLife) -> Option<usize> {
        let mut ids = lock(&self.ids);
        if ids[self.number] != life.id {
            ids[self.number].clone_from(&life.id);
        }
        life.id.as_ref()?;
        let twin = ids[..self.number].iter().position(|id| *id == life.id)?;
        Some(twin + 1)
    }

    /// Once for each change.
    fn log(&self, objection: Option<&String>) {
        let mut seen = lock(&self.seen);
        if seen.logged.is_some() != objection.is_some() {
            match objection {
                Some(why) => tracing::warn!(node = self.shown, why, "a node does not vote"),
                None => tracing::info!(node = self.shown, "a node votes again"),
            }
            seen.logged = objection.cloned();
        }
    }

    /// Notes whether the node answered.
    fn heard<T>(&self, answer: Result<T>) -> Result<T> {
        match &answer {
            Err(error) if error.kind() == ErrorKind::Unavailable => self.silence.begins(),
            _ => self.silence.is_over(),
        }
        answer
    }

    /// The claim as a backend that is no voter sees it: with an owner of its own, so that no owner
    /// enters again at a node what it has at others.
    fn as_asked(&self, claim: &Claim) -> Claim {
        let mut asked = claim.clone();
        if self.voter().is_none() {
            asked.owner = Owner::from_id(format!("{}:{}", claim.id, claim.owner));
        }
        asked
    }

    async fn take(&self, holding: &Arc<Holding>, majority: usize) -> Result<Vote> {
        let claim = self.as_asked(&holding.claim);
        let Some(mut grant) = self.backend.acquire(&claim, &Patience::none()).await? else {
            return Ok(Vote::No { holder: String::new(), left: None });
        };
        let (heard, number) = (Arc::downgrade(holding), self.number);
        grant.lease.watch(Alarm::new(move |signal| {
            if let Some(holding) = heard.upgrade() {
                holding.hear(number, &signal, majority);
            }
        }));
        lock(&self.leases).insert(claim.id, grant.lease);
        let span = Some(grant.valid_for).filter(|span| *span < claim.ttl);
        holding.has_for(self.number, span);
        Ok(Vote::Yes { floor: 0, clock: 0 })
    }

    async fn renew(&self, holding: &Arc<Holding>, majority: usize) -> Result<Kept> {
        let claim = self.as_asked(&holding.claim);
        // The lease of the grant is its holder's, also where the ticket is used by the same keeper.
        let lease = if holding.anew { lock(&self.leases).remove(&claim.id) } else { None };
        if let Some(mut lease) = lease.or_else(|| self.backend.lease_of(&Ticket::of(&claim))) {
            let standing = lease.renew().await;
            match standing {
                Ok(Standing::Lost(LossReason::Broken { reason })) => {
                    return Ok(Kept::Broken(reason));
                }
                Ok(Standing::Lost(_)) => {}
                other => {
                    if holding.anew {
                        lock(&self.leases).insert(claim.id, lease);
                    }
                    let span = match other? {
                        Standing::HeldFor(span) => Some(span),
                        _ => None,
                    };
                    holding.has_for(self.number, span);
                    return Ok(Kept::Ours { left: None });
                }
            }
        }
        if !holding.anew {
            return Ok(Kept::Others);
        }
        Ok(match self.take(holding, majority).await? {
            Vote::Yes { .. } => Kept::Retaken,
            Vote::No { .. } => Kept::Others,
        })
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("backend", &self.backend).finish_non_exhaustive()
    }
}
