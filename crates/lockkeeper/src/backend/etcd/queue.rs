//! The queue of claims that the keys below a name are.

use super::debt::{Debt, Debts};
use super::key::Keys;
use super::lease::EtcdLease;
use super::link::{Answered, Link};
use super::listener::Listener;
use super::lock;
use super::place::{self, Place};
use super::proto::{RangeResponse, ResponseHeader, TxnRequest, TxnResponse, path};
use super::requests::{self, Ticket, first_of, reads};
use super::session::{Session, Term};
use super::trouble::Trouble;
use super::{together, view};
use crate::backend::{
    Backend, Capability, Claim, FencingToken, Grant, Inspector, LockView, Mode, Moment,
    MultiAcquire, Name, Patience, Together,
};
use crate::error::Result;
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The queue in etcd; opened by [`connect`](crate::connect()).
#[derive(Debug)]
pub struct Etcd {
    pub(super) shared: Arc<Shared>,
}

/// What a backend and its leases share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) link: Arc<Link>,
    pub(super) session: Session,
    pub(super) listener: Listener,
    pub(super) debts: Arc<Debts>,
    pub(super) keys: Keys,
    pub(super) prefix: String,
}

/// A claim that has its key.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) ticket: Ticket,
    pub(super) term: Arc<Term>,
    pub(super) created: i64,
    /// The revision at which the key was there.
    pub(super) seen: i64,
    /// Whether the request for it was sent more than once, and may be carried out again.
    pub(super) asked_twice: bool,
}

/// Where a claim was found.
#[derive(Debug)]
pub(super) struct Looked {
    /// When the request that found it left.
    pub(super) sent: Moment,
    pub(super) place: Place,
    /// What was so at this revision.
    pub(super) revision: i64,
}

/// What became of stepping into the line.
pub(super) enum Entered {
    At(Entry, Looked),
    /// Something was in the way that is not any more.
    Again,
}

impl Etcd {
    pub(super) async fn open(link: Arc<Link>, prefix: String, session: Duration) -> Result<Self> {
        // To know now whether we are let in. The session begins when it is needed.
        let probe = format!("{prefix}\u{1}").into_bytes();
        let _: RangeResponse = link.call(path::RANGE, &requests::one(probe.clone())).await?;
        let debts = Arc::new(Debts::new(link.clone(), prefix.clone()));
        let shared = Shared {
            session: Session::new(link.clone(), session, probe),
            listener: Listener::new(link.clone(), debts.clone()),
            debts,
            keys: Keys::default(),
            link,
            prefix,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The grant of a claim found at the head by a request sent then; `None` when its session
    /// may be over meanwhile.
    pub(super) fn grant(&self, claim: &Claim, entry: Entry, sent: Moment) -> Option<Grant> {
        let valid_for = claim.ttl.min(entry.term.end().since(sent));
        if valid_for.is_zero() {
            self.shared.debts.owe(claim.id, Debt::of(&entry));
            return None;
        }
        let token = place::token(entry.created);
        let lease = EtcdLease::new(self.shared.clone(), claim, entry, sent + valid_for);
        Some(Grant { lease: Box::new(lease), token, sent, valid_for })
    }

    /// Takes the name if that can be without waiting, and writes nothing if not.
    async fn take_now(&self, claim: &Claim) -> Result<Option<Grant>> {
        let shared = &*self.shared;
        // Nobody may have come after this revision; none at all while it is zero.
        let mut alone_since = 0;
        loop {
            let term = shared.session.term().await?;
            let ticket = Ticket::new(&shared.prefix, &shared.keys, claim, &term);
            let sent = Moment::now();
            let request = ticket.enter_unless_joined(&shared.prefix, claim, &term, alone_since);
            let asked = shared.ask(claim, &ticket, &term, &request).await?;
            let Some((answer, asked_twice)) = asked else { continue };
            let revision = revision_of(answer.header);
            if answer.succeeded {
                let entry = Entry { ticket, term, created: revision, seen: revision, asked_twice };
                match self.grant(claim, entry, sent) {
                    Some(grant) => return Ok(Some(grant)),
                    None => continue,
                }
            }
            let mut reads = reads(answer.responses);
            if let Some(mine) = first_of(reads.next()) {
                // Ours, by a request whose answer was lost.
                let (created, seen) = (mine.create_revision, revision);
                let entry = Entry { ticket, term, created, seen, asked_twice: true };
                let looked = shared.look_or_owe(claim, &entry).await?;
                if looked.place == Place::Head {
                    return Ok(self.grant(claim, entry, looked.sent));
                }
                shared.leave(claim, &entry).await?;
                return Ok(None);
            }
            let doubt = first_of(reads.next()).map(|kv| kv.value).unwrap_or_default();
            let cleared = *lock(&term.doubt) == doubt;
            *lock(&term.doubt) = doubt;
            let there = reads.next().unwrap_or_default().kvs;
            if there.is_empty() && !cleared {
                continue;
            }
            let is_taken = |kvs: &[_]| {
                let (holders, waiting) = place::part(&ticket.line, kvs);
                let modes = holders.iter().filter_map(|kv| {
                    Some((super::record::mode_of(&kv.value), place::token(kv.create_revision)?))
                });
                !waiting.is_empty() || !crate::backend::queue::fits(claim.mode, modes)
            };
            if is_taken(&there) {
                return shared.none_of_it(claim, &ticket, &term, asked_twice).await;
            }
            alone_since = revision;
            if claim.mode == Mode::Exclusive {
                // What was first in the range is of a longer name; there may be more behind it.
                let everyone: RangeResponse =
                    shared.link.call(path::RANGE, &ticket.everyone()).await?;
                if is_taken(&everyone.kvs) {
                    return shared.none_of_it(claim, &ticket, &term, asked_twice).await;
                }
                alone_since = revision_of(everyone.header);
            }
        }
    }
}

#[async_trait]
impl Backend for Etcd {
    fn capability(&self) -> Capability {
        crate::recipes::ETCD
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        if patience.is_over() {
            self.take_now(claim).await
        } else {
            self.wait(claim, patience).await
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        match self.shared.debts.of(claim.id) {
            Some(debt) => self.shared.debts.pay(claim.id, &debt).await.map(|_| ()),
            // It never had a key, or has none any more.
            None => Ok(()),
        }
    }

    async fn close(&self) -> Result<()> {
        let Shared { session, debts, .. } = &*self.shared;
        debts.pay_what_is_due().await;
        session.close(|lease| debts.any_on(lease)).await
    }

    fn multi(&self) -> Option<&dyn MultiAcquire> {
        Some(self)
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }
}

impl Shared {
    /// Asks for a key, keeping the session alive meanwhile if that is due. `None` when the
    /// session turned out to be over: then there is no key.
    async fn ask(
        &self,
        claim: &Claim,
        ticket: &Ticket,
        term: &Arc<Term>,
        request: &TxnRequest,
    ) -> Result<Option<(TxnResponse, bool)>> {
        let asked = self.ask_alive(term, request).await;
        if asked.is_err() {
            self.debts.owe(claim.id, Debt::in_doubt(ticket, term.lease));
        }
        asked
    }

    /// The name is another's; makes sure that it stays so if a request may still be on its way.
    async fn none_of_it(
        &self,
        claim: &Claim,
        ticket: &Ticket,
        term: &Term,
        asked_twice: bool,
    ) -> Result<Option<Grant>> {
        if asked_twice {
            let debt = Debt::in_doubt(ticket, term.lease);
            self.debts.owe(claim.id, debt.clone());
            self.debts.pay(claim.id, &debt).await?;
        }
        Ok(None)
    }

    /// As [`ask`](Self::ask), owing nothing if there is no answer.
    pub(super) async fn ask_alive(
        &self,
        term: &Arc<Term>,
        request: &TxnRequest,
    ) -> Result<Option<(TxnResponse, bool)>> {
        let asking = self.link.try_call(path::TXN, request);
        let answered: Result<Answered<TxnResponse>, Trouble> =
            if Moment::now().since(term.sent()) > term.beat() {
                // Side by side, so that it costs no time.
                let alive = self.keep_alive(term, term.beat());
                tokio::join!(asking, alive).0
            } else {
                asking.await
            };
        match answered {
            Ok(Answered { answer, asked_twice, .. }) => Ok(Some((answer, asked_twice))),
            Err(trouble) if trouble.is_lease_gone() => {
                self.gone(term);
                Ok(None)
            }
            Err(trouble) => Err(trouble.explain(self.link.shown())),
        }
    }

    /// Steps into the line.
    pub(super) async fn enter(&self, claim: &Claim, term: Arc<Term>) -> Result<Entered> {
        let ticket = Ticket::new(&self.prefix, &self.keys, claim, &term);
        let request = ticket.enter(&self.prefix, claim, &term);
        let sent = Moment::now();
        let asked = self.ask(claim, &ticket, &term, &request).await?;
        let Some((answer, asked_twice)) = asked else { return Ok(Entered::Again) };
        let revision = revision_of(answer.header);
        if answer.succeeded {
            let line = reads(answer.responses).next().unwrap_or_default();
            let entry = Entry { ticket, term, created: revision, seen: revision, asked_twice };
            let looked = match place_of_last(&entry.ticket, &line) {
                Some(place) => Looked { sent, place, revision },
                None => self.look_or_owe(claim, &entry).await?,
            };
            return Ok(Entered::At(entry, looked));
        }
        let request = ticket.what_was_in_the_way(&self.prefix, &term);
        let asked = self.ask(claim, &ticket, &term, &request).await?;
        let Some((answer, _)) = asked else { return Ok(Entered::Again) };
        let mut reads = reads(answer.responses);
        match first_of(reads.next()) {
            // Ours, by a request whose answer was lost.
            Some(mine) => {
                let (created, seen) = (mine.create_revision, revision);
                let entry = Entry { ticket, term, created, seen, asked_twice: true };
                let looked = self.look_or_owe(claim, &entry).await?;
                Ok(Entered::At(entry, looked))
            }
            None => {
                let doubt = first_of(reads.next()).map(|kv| kv.value).unwrap_or_default();
                *lock(&term.doubt) = doubt;
                Ok(Entered::Again)
            }
        }
    }

    /// Where the claim is now. Reads our own key too: a grant counts only when that is still
    /// there.
    pub(super) async fn look(&self, entry: &Entry) -> Result<Looked> {
        let Entry { ticket, created, .. } = entry;
        if ticket.mode == Mode::Exclusive {
            let sent = Moment::now();
            let line: RangeResponse = self.link.call(path::RANGE, &ticket.up_to(*created)).await?;
            let revision = revision_of(line.header);
            match place_of_last(ticket, &line) {
                // Its number counts those behind us too.
                Some(Place::Waits { behind, .. }) => {
                    return Ok(Looked {
                        sent,
                        place: Place::Waits { number: None, behind },
                        revision,
                    });
                }
                Some(place) => return Ok(Looked { sent, place, revision }),
                None => {}
            }
        }
        let sent = Moment::now();
        let line: RangeResponse = self.link.call(path::RANGE, &ticket.all_up_to(*created)).await?;
        let place = place::find(&ticket.line, &line.kvs, ticket.key.bytes());
        Ok(Looked { sent, place, revision: revision_of(line.header) })
    }

    /// As [`look`](Self::look), for a claim that is given up if there is no answer.
    async fn look_or_owe(&self, claim: &Claim, entry: &Entry) -> Result<Looked> {
        let looked = self.look(entry).await;
        if looked.is_err() {
            self.debts.owe(claim.id, Debt::of(entry));
        }
        looked
    }

    /// Leaves the line, or lets go of the name.
    pub(super) async fn leave(&self, claim: &Claim, entry: &Entry) -> Result<()> {
        let debt = Debt::of(entry);
        self.debts.owe(claim.id, debt.clone());
        self.debts.pay(claim.id, &debt).await.map(|_| ())
    }

    /// Shows that we live, unless someone did recently; and does what was left to do.
    pub(super) async fn keep_alive(&self, term: &Arc<Term>, recently: Duration) -> Result<()> {
        if term.keep_alive(&self.link, recently).await? {
            if term.is_gone() {
                self.gone(term);
            }
            self.debts.pay_what_is_due().await;
        }
        Ok(())
    }

    /// The session is over: so is everything on it.
    pub(super) fn gone(&self, term: &Arc<Term>) {
        term.declare_gone();
        self.listener.lease_gone(term.lease);
    }
}

fn revision_of(header: Option<ResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}

/// Where the last of the line is, from what [`Ticket::last`] asks for; `None` when that is not
/// enough to tell.
fn place_of_last(ticket: &Ticket, line: &RangeResponse) -> Option<Place> {
    if ticket.mode != Mode::Exclusive {
        return Some(place::find(&ticket.line, &line.kvs, ticket.key.bytes()));
    }
    match &line.kvs[..] {
        [] => Some(Place::Nowhere),
        [last, ..] if last.key != ticket.key.bytes() => {
            if ticket.line.has(&last.key) {
                Some(Place::Nowhere)
            } else {
                None
            }
        }
        [_] => Some(Place::Head),
        [_, before, ..] if ticket.line.has(&before.key) => Some(Place::Waits {
            number: usize::try_from(line.count - 1).ok(),
            behind: vec![before.key.clone()],
        }),
        _ => None,
    }
}

#[async_trait]
impl MultiAcquire for Etcd {
    async fn acquire_all(&self, claims: &[Claim]) -> Result<Together> {
        together::acquire(self, claims).await
    }
}

#[async_trait]
impl Inspector for Etcd {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        view::list(&self.shared, prefix).await
    }

    async fn show(&self, name: &Name) -> Result<LockView> {
        view::show(&self.shared, name).await
    }

    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool> {
        view::break_hold(&self.shared, name, token, reason).await
    }
}

impl fmt::Display for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shared.link.shown())
    }
}
