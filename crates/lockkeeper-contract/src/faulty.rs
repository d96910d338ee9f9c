//! A store that fails on command.

use async_trait::async_trait;
use lockkeeper::backend::{
    Alarm, Backend, Background, Capability, Claim, FencingToken, Finding, Grant, Inspector, Lease,
    MultiAcquire, Name, Patience, Release, Reserve, Reserved, Sequencer, Standing, Ticket,
    Together, Voter,
};
use lockkeeper::{Error, ErrorKind, Result};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// What happens to renewals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renewals {
    /// They reach the store and its answer comes back.
    Pass,
    /// They are answered with an error and do not reach the store.
    Fail,
    /// They neither reach the store nor end, until this setting changes.
    Hang,
    /// They reach the store when this setting changes.
    SentLate,
    /// They reach the store at once, and the answer comes when this setting changes.
    AnsweredLate,
    /// They reach the store, and the answer is lost.
    AnswerLost,
}

/// Longer than any store takes to report a broken claim, if it does.
const BREAKING: Duration = Duration::from_millis(800);

/// A backend that forwards everything to another, except as its switches say.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn Backend>,
    switches: Arc<Switches>,
}

#[derive(Debug)]
struct Switches {
    renewals: watch::Sender<Renewals>,
    renewals_begun: AtomicUsize,
    answers_to_lose: AtomicUsize,
    slow_answers: Mutex<Vec<Duration>>,
    releases_to_fail: AtomicUsize,
    withdrawals_to_fail: AtomicUsize,
    retries: watch::Sender<Retries>,
    times_given_back: AtomicUsize,
    granted: Mutex<Option<Claim>>,
    grants_to_break: AtomicUsize,
}

/// What happens to a release or withdrawal, and to its retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retries {
    Pass,
    /// The next one reaches the store, and its answer is lost.
    LoseAnswer,
    /// They wait here.
    Hold,
}

impl Switches {
    /// Has `request` reach the store, at the time and with the answer that the switch says.
    async fn giving_back(&self, request: impl Future<Output = Result<()>>) -> Result<()> {
        let lose = |now: &mut Retries| {
            let lost = *now == Retries::LoseAnswer;
            if lost {
                *now = Retries::Hold;
            }
            lost
        };
        let lost = self.retries.send_if_modified(lose);
        if !lost {
            // Also ends when the switches are dropped, because then nobody can change them.
            let _ = self.retries.subscribe().wait_for(|now| *now != Retries::Hold).await;
        }
        let answer = request.await;
        self.times_given_back.fetch_add(1, Ordering::SeqCst);
        if lost { answer.and(Err(fault("the answer was lost"))) } else { answer }
    }
}

impl Faulty {
    /// Wraps `inner`, without faults at first.
    pub fn new(inner: Arc<dyn Backend>) -> Self {
        let switches = Switches {
            renewals: watch::Sender::new(Renewals::Pass),
            renewals_begun: AtomicUsize::new(0),
            answers_to_lose: AtomicUsize::new(0),
            slow_answers: Mutex::default(),
            releases_to_fail: AtomicUsize::new(0),
            withdrawals_to_fail: AtomicUsize::new(0),
            retries: watch::Sender::new(Retries::Pass),
            times_given_back: AtomicUsize::new(0),
            granted: Mutex::default(),
            grants_to_break: AtomicUsize::new(0),
        };
        Self { inner, switches: Arc::new(switches) }
    }

    /// Sets what happens to renewals from now on, and ends those that hang.
    pub fn renewals(&self, become_of_them: Renewals) {
        self.switches.renewals.send_replace(become_of_them);
    }

    /// How many renewals have begun so far.
    pub fn renewals_begun(&self) -> usize {
        self.switches.renewals_begun.load(Ordering::SeqCst)
    }

    /// Loses the next `count` answers to an acquire that was granted: the store has the claim,
    /// its caller gets [`ErrorKind::Unavailable`]. So with numbers that were reserved, and records
    /// that were written.
    pub fn lose_answers(&self, count: usize) {
        self.switches.answers_to_lose.store(count, Ordering::SeqCst);
    }

    /// Delays the answer to the next acquire that is granted.
    pub fn delay_next_answer(&self, by: Duration) {
        self.switches.slow_answers.lock().unwrap_or_else(PoisonError::into_inner).push(by);
    }

    /// Fails the next `count` releases; they do not reach the store.
    pub fn fail_releases(&self, count: usize) {
        self.switches.releases_to_fail.store(count, Ordering::SeqCst);
    }

    /// Loses the answer to the next release or withdrawal, which does reach the store, and holds
    /// its retries back until [`let_retries_go`](Self::let_retries_go).
    pub fn hold_back_retries(&self) {
        self.switches.retries.send_replace(Retries::LoseAnswer);
    }

    /// Lets the retries go that were held back.
    pub fn let_retries_go(&self) {
        self.switches.retries.send_replace(Retries::Pass);
    }

    /// How many releases and withdrawals reached the store so far.
    pub fn times_given_back(&self) -> usize {
        self.switches.times_given_back.load(Ordering::SeqCst)
    }

    /// Fails the next `count` withdrawals; they do not reach the store.
    pub fn fail_withdrawals(&self, count: usize) {
        self.switches.withdrawals_to_fail.store(count, Ordering::SeqCst);
    }

    /// Breaks the next `count` claims after the store has granted them and before their callers
    /// learn of it, if the store can. The news of the break gets `BREAKING` as a head start on the
    /// grant.
    pub fn break_grants(&self, count: usize) {
        self.switches.grants_to_break.store(count, Ordering::SeqCst);
    }

    fn counting(&self) -> Result<&dyn Sequencer> {
        let missing = || Error::new(ErrorKind::Unsupported, "the store has no sequencer");
        self.inner.sequencer().ok_or_else(missing)
    }

    async fn break_at_once(&self, claim: &Claim, token: Option<FencingToken>) -> Result<()> {
        if let (Some(inspector), Some(token)) = (self.inner.inspector(), token) {
            inspector.break_hold(&claim.name, token, "broken at once").await?;
            tokio::time::sleep(BREAKING).await;
        }
        Ok(())
    }

    /// Removes the last granted claim from the store without telling its holder.
    ///
    /// # Errors
    /// When the store cannot be reached.
    pub async fn remove_granted(&self) -> Result<()> {
        let granted = self.granted().clone();
        match granted {
            Some(claim) => self.inner.withdraw(&claim).await,
            None => Ok(()),
        }
    }

    /// The ticket of the last granted claim.
    pub fn ticket(&self) -> Option<Ticket> {
        self.granted().as_ref().map(Ticket::of)
    }

    fn granted(&self) -> MutexGuard<'_, Option<Claim>> {
        self.switches.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends every fault.
    pub fn heal(&self) {
        self.renewals(Renewals::Pass);
        self.lose_answers(0);
        self.fail_releases(0);
        self.fail_withdrawals(0);
        self.let_retries_go();
        self.break_grants(0);
        self.switches.slow_answers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Decrements the count; returns whether it was above zero.
fn one_of(count: &AtomicUsize) -> bool {
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1)).is_ok()
}

/// Waits for another setting. Also ends when the switches are dropped, because then nobody can
/// change them.
async fn changed(setting: &mut watch::Receiver<Renewals>) {
    let _ = setting.changed().await;
}

fn fault(what: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{what}, as it was told to be"))
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Backend for Faulty {
    fn capability(&self) -> Capability {
        self.inner.capability()
    }

    fn recipe(&self) -> &'static str {
        self.inner.recipe()
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        let Some(grant) = self.inner.acquire(claim, patience).await? else { return Ok(None) };
        let slow = self.switches.slow_answers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(slow) = slow {
            tokio::time::sleep(slow).await;
        }
        if one_of(&self.switches.answers_to_lose) {
            return Err(fault("the answer was lost"));
        }
        if one_of(&self.switches.grants_to_break) {
            self.break_at_once(claim, grant.token).await?;
        }
        *self.granted() = Some(claim.clone());
        Ok(Some(self.faulty(grant)))
    }

    fn attach(&self, background: &Background) {
        self.inner.attach(background);
    }

    fn multi(&self) -> Option<&dyn MultiAcquire> {
        self.inner.multi().map(|_| self as &dyn MultiAcquire)
    }

    fn lease_of(&self, ticket: &Ticket) -> Option<Box<dyn Lease>> {
        Some(self.faulty_lease(self.inner.lease_of(ticket)?))
    }

    fn keys(&self, name: &Name) -> Vec<String> {
        self.inner.keys(name)
    }

    async fn incarnation(&self) -> Result<Option<String>> {
        self.inner.incarnation().await
    }

    async fn checkup(&self) -> Result<Vec<Finding>> {
        self.inner.checkup().await
    }

    async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        self.inner.round_trips(count).await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        if one_of(&self.switches.withdrawals_to_fail) {
            return Err(fault("the withdrawal was dropped"));
        }
        self.switches.giving_back(self.inner.withdraw(claim)).await
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        self.inner.inspector()
    }

    fn sequencer(&self) -> Option<&dyn Sequencer> {
        self.inner.sequencer().map(|_| self as &dyn Sequencer)
    }

    fn no_sequencer(&self) -> Option<&'static str> {
        self.inner.no_sequencer()
    }

    /// None: what a quorum asks of a node would not come through here.
    fn voter(&self) -> Option<&dyn Voter> {
        None
    }
}

/// The answers to what was reserved or written are lost as those to grants are.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Sequencer for Faulty {
    async fn reserve(&self, name: &Name, wish: &Reserve) -> Result<Reserved> {
        let reserved = self.counting()?.reserve(name, wish).await?;
        match reserved {
            Reserved::From(_) if one_of(&self.switches.answers_to_lose) => {
                Err(fault("the answer was lost"))
            }
            reserved => Ok(reserved),
        }
    }

    async fn read(&self, name: &Name) -> Result<Option<String>> {
        self.counting()?.read(name).await
    }

    async fn write(&self, name: &Name, value: &str, expected: Option<&str>) -> Result<bool> {
        let written = self.counting()?.write(name, value, expected).await?;
        match written && one_of(&self.switches.answers_to_lose) {
            true => Err(fault("the answer was lost")),
            false => Ok(written),
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Name, String)>> {
        self.counting()?.list(prefix).await
    }

    async fn time(&self) -> Result<Option<SystemTime>> {
        self.counting()?.time().await
    }

    async fn auto_increment(&self, count: u32) -> Result<Option<Vec<u64>>> {
        let taken = self.counting()?.auto_increment(count).await?;
        match taken.is_some() && one_of(&self.switches.answers_to_lose) {
            true => Err(fault("the answer was lost")),
            false => Ok(taken),
        }
    }
}

#[async_trait]
impl MultiAcquire for Faulty {
    async fn acquire_all(&self, claims: &[Claim]) -> Result<Together> {
        let Some(multi) = self.inner.multi() else { return Ok(Together::OneByOne) };
        let together = multi.acquire_all(claims).await?;
        let Together::Granted(grants) = together else { return Ok(together) };
        if one_of(&self.switches.answers_to_lose) {
            return Err(fault("the answer was lost"));
        }
        Ok(Together::Granted(grants.into_iter().map(|grant| self.faulty(grant)).collect()))
    }
}

impl Faulty {
    fn faulty(&self, mut grant: Grant) -> Grant {
        grant.lease = self.faulty_lease(grant.lease);
        grant
    }

    fn faulty_lease(&self, inner: Box<dyn Lease>) -> Box<dyn Lease> {
        Box::new(FaultyLease { inner, switches: self.switches.clone() })
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "faulty({})", self.inner)
    }
}

#[derive(Debug)]
struct FaultyLease {
    inner: Box<dyn Lease>,
    switches: Arc<Switches>,
}

/// Which of a lease's ways to ask for more time.
#[derive(Debug, Clone, Copy)]
enum Ask {
    Renew,
    HandOut,
    TakeOver,
}

impl FaultyLease {
    async fn pass(&mut self, how: Ask) -> Result<Standing> {
        match how {
            Ask::Renew => self.inner.renew().await,
            Ask::HandOut => self.inner.hand_out().await,
            Ask::TakeOver => self.inner.take_over().await,
        }
    }

    async fn ask(&mut self, how: Ask) -> Result<Standing> {
        self.switches.renewals_begun.fetch_add(1, Ordering::SeqCst);
        let mut setting = self.switches.renewals.subscribe();
        let become_of_it = *setting.borrow_and_update();
        match become_of_it {
            Renewals::Pass => self.pass(how).await,
            Renewals::Fail => Err(fault("the renewal was dropped")),
            Renewals::Hang => {
                changed(&mut setting).await;
                Err(fault("the renewal hung"))
            }
            Renewals::SentLate => {
                changed(&mut setting).await;
                self.pass(how).await
            }
            Renewals::AnsweredLate => {
                let answer = self.pass(how).await;
                changed(&mut setting).await;
                answer
            }
            Renewals::AnswerLost => {
                self.pass(how).await?;
                Err(fault("the answer was lost"))
            }
        }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Lease for FaultyLease {
    async fn renew(&mut self) -> Result<Standing> {
        self.ask(Ask::Renew).await
    }

    async fn hand_out(&mut self) -> Result<Standing> {
        self.ask(Ask::HandOut).await
    }

    async fn take_over(&mut self) -> Result<Standing> {
        self.ask(Ask::TakeOver).await
    }

    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        if one_of(&self.switches.releases_to_fail) {
            return Err(fault("the release was dropped"));
        }
        self.switches.giving_back(self.inner.release(how)).await
    }

    fn watch(&mut self, alarm: Alarm) {
        self.inner.watch(alarm);
    }

    fn guards_changed(&mut self, guards: usize) {
        self.inner.guards_changed(guards);
    }
}
