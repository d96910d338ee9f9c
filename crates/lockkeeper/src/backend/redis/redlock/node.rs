//! One server of a `redlock://`: a backend, a [`Voter`] and its [`Inspector`].

use super::life::Life;
use super::requests::{By, Requests};
use crate::backend::redis::checkup;
use crate::backend::redis::client::Subscriber;
use crate::backend::support::list;
use crate::backend::{
    Alarm, Backend, Capability, Claim, ClaimId, FencingToken, Finding, GaveBack, Grant, Inspector,
    Kept, Lease, LockView, LossReason, Moment, Name, NodeLife, Page, Passing, Patience, Release,
    Released, Standing, Ticket, Vote, Voter,
};
use crate::error::{ErrorKind, Result};
use async_trait::async_trait;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// After how many releases of a name that nobody here waits for any more it is not listened for.
const UNWANTED: u32 = 3;

/// One server.
#[derive(Debug)]
pub(super) struct RedlockNode {
    shared: Arc<Requests>,
    /// Connects when somebody here waits, and this is the node that is listened to.
    subscriber: Arc<Subscriber>,
    life: Life,
    settings: NodeSettings,
}

/// How a node is used.
#[derive(Debug, Clone)]
pub(super) struct NodeSettings {
    /// Whether tokens are remembered.
    pub(super) token: bool,
    pub(super) allow_eviction: bool,
    /// The server for people, without secrets.
    pub(super) shown: String,
}

impl RedlockNode {
    pub(super) fn new(requests: Requests, settings: NodeSettings) -> Self {
        let (connector, channel) = (requests.client.connector.clone(), requests.keys.freed(""));
        let subscriber =
            Arc::new(Subscriber::new(connector, channel, false, |_| {}).leaving_after(UNWANTED));
        Self { shared: Arc::new(requests), subscriber, life: Life::default(), settings }
    }
}

#[async_trait]
impl Voter for RedlockNode {
    async fn ask(
        &self,
        claim: &Claim,
        token: Option<FencingToken>,
        wants_clock: bool,
    ) -> Result<Vote> {
        match self.settings.token {
            true => self.shared.ask(claim, token, wants_clock).await,
            false => self.shared.ask_plainly(claim).await,
        }
    }

    async fn raise(&self, claim: &Claim, token: FencingToken) -> Result<bool> {
        self.shared.raise(claim, token).await
    }

    async fn keep(&self, claim: &Claim, token: Option<FencingToken>) -> Result<Kept> {
        self.shared.keep(claim, token).await
    }

    async fn life(&self) -> Result<NodeLife> {
        let Requests { client, keys, .. } = &*self.shared;
        self.life.now(client, &keys.kept_since, self.settings.allow_eviction).await
    }

    fn released(&self, name: &Name) -> Option<Released> {
        let (subscriber, channel) =
            (self.subscriber.clone(), self.shared.keys.freed(name.as_str()));
        // From here on: what is published before the server knows of it is missed, and then asked for.
        let mut subscription = subscriber.subscribe([&channel, &channel]);
        Some(Box::pin(async move {
            subscriber.confirm(&subscription).await?;
            subscription.message().await;
            Ok(())
        }))
    }

    fn passing(&self) -> Option<&dyn Passing> {
        Some(self)
    }
}

#[async_trait]
impl Passing for RedlockNode {
    async fn pass(
        &self,
        taken_as: ClaimId,
        claim: &Claim,
        token: Option<FencingToken>,
    ) -> Result<Kept> {
        self.shared.pass(taken_as, claim, token).await
    }

    async fn give_back(&self, name: &Name, taken_as: ClaimId, stay: Duration) -> Result<GaveBack> {
        let told = self.shared.release(name, By::TakenAs(&taken_as.to_string()), stay).await?;
        // This keeper may be among those who were told: it waited before.
        let own = || u64::from(self.subscriber.hears(&self.shared.keys.freed(name.as_str())));
        let awaited = |told| told > 0 && told > own();
        Ok(told.map_or(GaveBack::Lacked, |told| GaveBack::Had { awaited: awaited(told) }))
    }
}

#[async_trait]
impl Backend for RedlockNode {
    fn capability(&self) -> Capability {
        crate::recipes::REDLOCK
    }

    async fn acquire(&self, claim: &Claim, _: &Patience) -> Result<Option<Grant>> {
        let sent = Moment::now();
        match self.ask(claim, None, false).await? {
            Vote::No { .. } => Ok(None),
            Vote::Yes { .. } => {
                let lease = NodeLease { shared: self.shared.clone(), ticket: Ticket::of(claim) };
                Ok(Some(Grant::new(Box::new(lease), None, sent, claim.ttl)))
            }
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.shared.withdraw(&claim.name, &claim.id.to_string()).await
    }

    /// Ends both connections, with their tasks.
    async fn close(&self) -> Result<()> {
        self.subscriber.close().await;
        self.shared.client.close();
        Ok(())
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }

    fn voter(&self) -> Option<&dyn Voter> {
        Some(self)
    }

    fn lease_of(&self, ticket: &Ticket) -> Option<Box<dyn Lease>> {
        Some(Box::new(NodeLease { shared: self.shared.clone(), ticket: ticket.clone() }))
    }

    fn keys(&self, name: &Name) -> Vec<String> {
        self.shared.keys.lock(name).into_iter().collect()
    }

    async fn incarnation(&self) -> Result<Option<String>> {
        Ok(self.life().await?.id)
    }

    async fn checkup(&self) -> Result<Vec<Finding>> {
        checkup::checkup(&self.shared.client).await
    }

    async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        checkup::round_trips(&self.shared.client, count).await
    }
}

impl RedlockNode {
    /// Those of the keys that are locks of ours.
    async fn shown(&self, keys: &[String]) -> Result<Vec<LockView>> {
        let names = keys.iter().filter_map(|key| self.shared.keys.name_of(key));
        let names: BTreeSet<Name> = names.collect();
        list::shown(names, ErrorKind::Store, |name| async move {
            let shown = self.shared.show(&name).await?.filter(|shown| shown.id.is_some());
            let holders = shown.into_iter().map(|shown| shown.view).collect();
            Ok(LockView { holders, ..LockView::new(name) })
        })
        .await
    }
}

#[async_trait]
impl Inspector for RedlockNode {
    /// Locks of ours only: the key of another library's looks like any other string.
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        let start = self.shared.keys.starting_with(prefix);
        let keys = self.shared.client.keys(&start, Some("string")).await?;
        self.shown(&keys).await
    }

    async fn list_page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        let start = self.shared.keys.starting_with(prefix);
        let found = self.shared.client.some_keys(&start, Some("string"), after, limit).await;
        let (keys, next) = found?;
        Ok(Page::new(self.shown(&keys).await?, next))
    }

    async fn show(&self, name: &Name) -> Result<LockView> {
        let shown = self.shared.show(name).await?;
        let holders = shown.into_iter().map(|shown| shown.view).collect();
        Ok(LockView { holders, ..LockView::new(name.clone()) })
    }

    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool> {
        let shown = self.shared.show(name).await?;
        // The claim that has this token, for good: the id is checked when it is broken.
        let found = shown.filter(|it| it.view.token == Some(token));
        let Some((id, taken_as)) = found.and_then(|it| it.id.zip(it.taken_as)) else {
            return Ok(false);
        };
        self.shared.break_claim(name, &id, &taken_as, reason).await
    }
}

impl fmt::Display for RedlockNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.settings.shown)
    }
}

/// A claim at one server: all that is needed to keep it is the name and the id.
#[derive(Debug)]
struct NodeLease {
    shared: Arc<Requests>,
    ticket: Ticket,
}

#[async_trait]
impl Lease for NodeLease {
    async fn renew(&mut self) -> Result<Standing> {
        Ok(match self.shared.renew(&self.ticket).await? {
            Kept::Ours { .. } => Standing::Held,
            Kept::Broken(reason) => Standing::Lost(LossReason::Broken { reason }),
            Kept::Retaken | Kept::Others => Standing::Lost(LossReason::Gone),
        })
    }

    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        let id = self.ticket.id.to_string();
        match self.shared.release(&self.ticket.name, By::Claim(&id), how.stay()).await? {
            None => Err(LossReason::Gone.to_error()),
            Some(_) => Ok(()),
        }
    }

    fn watch(&mut self, _: Alarm) {}
}
