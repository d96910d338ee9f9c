//! The nodes of a cluster, each on a connection of its own.
//!
//! A key belongs to one of 16384 slots, and a slot to one node ([`slots`](super::slots)). Which
//! node has which slots is asked of the cluster once, and again when an error suggests that it
//! changed.
//!
//! | a node says | then |
//! |---|---|
//! | `MOVED slot host` | the slot is there now: remembered, and sent there |
//! | `ASK slot host` | the slot is on its way there: sent there with `ASKING`, this once |
//! | `TRYAGAIN`, a non-local key | some keys of the script have moved, others not: called by its first key alone |
//! | `CLUSTERDOWN`, `MASTERDOWN`, `READONLY` | a failover is under way: the slots are asked for again, after a pause |
//! | nothing, connection closed | once more on a new connection; then as above |
//! | nothing, in time | given up: it may be carried out yet |
//!
//! All of that takes no longer than one answer may take.
//!
//! The driver's own connection to a cluster was rejected: while it looks for one node it serves none,
//! so that a node that is silent takes the locks on all others with it; and it repeats commands
//! without saying so.

use super::CallForm;
use super::connector::Connector;
use super::lost_answers::LostAnswers;
use super::node::{Answer, Delivery, Failure, Node};
use super::slots::{Slots, redirected};
use super::topology::Host;
use crate::backend::Moment;
use crate::backend::redis::error::{self, Recovery};
use crate::backend::support::sync::lock;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{Cmd, ErrorKind as Cause, RedisError, RedisResult, ServerErrorKind, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Another node is asked for the slots when one has not answered for this long.
const NEXT_ASKED: Duration = Duration::from_millis(100);
/// Pauses before a node is asked again that cannot answer now.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));
/// This many redirections in a row are followed without a pause.
const REDIRECTIONS: u32 = 4;

/// All nodes of a cluster.
pub(super) struct Cluster {
    connector: Arc<Connector>,
    lost: LostAnswers,
    nodes: Mutex<HashMap<Host, Arc<Node>>>,
    /// Which node has which slots, as far as is known.
    slots: Mutex<Known>,
    /// Single-flight: many that do not know the slots ask once.
    asking: tokio::sync::Mutex<()>,
}

/// What is known of the slots.
#[derive(Default)]
struct Known {
    /// `None` until a node has told.
    slots: Option<Slots>,
    /// An error suggests that the slots have moved since.
    is_doubtful: bool,
}

/// What to do after an error.
enum Next {
    /// To this node, for a slot that it does not quite have yet or that is its own by now.
    Go(Host, Delivery),
    /// To the node that has the slot, at once or after a pause.
    Retry {
        pause: bool,
    },
    GiveUp,
}

impl Cluster {
    /// Connects to nothing yet.
    pub(super) fn new(connector: Arc<Connector>, lost: LostAnswers) -> Self {
        let (nodes, slots, asking) = Default::default();
        Self { connector, lost, nodes, slots, asking }
    }

    /// Sends a command to the node of a slot, or to any. Follows redirections, and tries again for
    /// as long as one answer may take while the cluster changes.
    pub(super) async fn send(
        &self,
        slot: Option<u16>,
        make: &(dyn Fn(CallForm) -> Cmd + Sync),
        first: Delivery,
    ) -> RedisResult<Answer> {
        let end = Moment::now() + self.connector.timeout();
        let (mut form, mut pause, mut redirections) = (CallForm::default(), PAUSES.0, 0);
        let mut led = None;
        loop {
            let (host, how) = match led.take() {
                Some(led) => led,
                None => (self.host_of(slot).await?, first),
            };
            let failure = match self.node(&host).send(make(form), how).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let pauses = match self.after(&failure, slot, &host, how, &mut form) {
                Next::GiveUp => return Err(failure.error),
                Next::Go(host, how) => {
                    redirections += 1;
                    led = (redirections < REDIRECTIONS).then_some((host, how));
                    led.is_none()
                }
                Next::Retry { pause } => pause,
            };
            if pauses {
                if end.remaining() < pause {
                    return Err(failure.error);
                }
                redirections = 0;
                (Moment::now() + pause).reached().await;
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    }

    /// What a failure calls for. Marks in `form` how the command is to be made the next time, and
    /// learns from redirections where the slot is.
    fn after(
        &self,
        Failure { error, sent }: &Failure,
        slot: Option<u16>,
        host: &Host,
        how: Delivery,
        form: &mut CallForm,
    ) -> Next {
        let plain = Delivery { asking: false, ..how };
        let target = || error.redirect_node().and_then(|(text, _)| redirected(text, host));
        match error.kind() {
            Cause::Server(ServerErrorKind::NoScript) if !form.in_full => {
                form.in_full = true;
                Next::Go(host.clone(), how)
            }
            Cause::Server(ServerErrorKind::Moved) => {
                let Some(to) = target() else { return Next::GiveUp };
                if let (Some(slot), Some(slots)) = (slot, &mut lock(&self.slots).slots) {
                    slots.moved(slot, to.clone());
                }
                Next::Go(to, plain)
            }
            Cause::Server(ServerErrorKind::Ask) => match target() {
                Some(to) => Next::Go(to, Delivery { asking: true, ..how }),
                None => Next::GiveUp,
            },
            // The slot is on its way, and keys that do not exist count as moved.
            _ if error::is_moving(error) => {
                let pause = std::mem::replace(&mut form.alone, true);
                Next::Retry { pause }
            }
            Cause::Server(
                ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly,
            ) => {
                self.doubt();
                Next::Retry { pause: true }
            }
            _ => match error::recovery(error) {
                Recovery::None => Next::GiveUp,
                // Closed since the last command; or by a node that is about to be gone.
                Recovery::Reconnect if *sent && !form.again => {
                    form.again = true;
                    Next::Retry { pause: false }
                }
                // Perhaps another has taken over, or is about to.
                Recovery::Reconnect => {
                    self.doubt();
                    Next::Retry { pause: true }
                }
                Recovery::Abandon => {
                    self.doubt();
                    Next::GiveUp
                }
            },
        }
    }

    /// Ends every connection.
    pub(super) fn close(&self) {
        lock(&self.nodes).values().for_each(|node| node.close());
    }

    /// Every primary.
    pub(super) async fn primaries(&self) -> RedisResult<Vec<Host>> {
        self.learn().await?;
        Ok(lock(&self.slots).slots.as_ref().map(Slots::primaries).unwrap_or_default())
    }

    /// The node at this host, made if it is new. It connects when it is first used.
    pub(super) fn node(&self, host: &Host) -> Arc<Node> {
        let mut nodes = lock(&self.nodes);
        match nodes.get(host) {
            Some(node) => node.clone(),
            None => {
                let node = Arc::new(Node::new(
                    self.connector.clone(),
                    self.lost.clone(),
                    Some(host.clone()),
                ));
                nodes.insert(host.clone(), node.clone());
                node
            }
        }
    }

    /// Where a slot is; any primary where none is asked for.
    async fn host_of(&self, slot: Option<u16>) -> RedisResult<Host> {
        self.learn().await?;
        let known = lock(&self.slots);
        let slots = known.slots.as_ref();
        let found = slots.and_then(|slots| match slot {
            Some(slot) => slots.host_of(slot).cloned(),
            None => slots.primaries().into_iter().next(),
        });
        drop(known);
        found.ok_or_else(|| {
            self.doubt();
            RedisError::from((Cause::ClusterConnectionNotFound, "no node serves the slot"))
        })
    }

    /// What is known may be wrong by now: it is asked for again before the next command.
    fn doubt(&self) {
        lock(&self.slots).is_doubtful = true;
    }

    /// Whether nothing suggests that the slots have to be asked for.
    fn is_certain(&self) -> bool {
        let known = lock(&self.slots);
        known.slots.is_some() && !known.is_doubtful
    }

    /// Asks which node has which slots, unless that is known: one node, and another if that is
    /// slow. What was known stays if none answers.
    async fn learn(&self) -> RedisResult<()> {
        if self.is_certain() {
            return Ok(());
        }
        let _alone = self.asking.lock().await;
        if self.is_certain() {
            return Ok(());
        }
        let mut asked: FuturesUnordered<_> = self
            .connector
            .hosts()
            .into_iter()
            .enumerate()
            .map(|(place, host)| async move {
                let place = u32::try_from(place).unwrap_or(u32::MAX);
                tokio::time::sleep(NEXT_ASKED.saturating_mul(place)).await;
                self.slots_by(host).await
            })
            .collect();
        let mut last = RedisError::from((Cause::ClusterConnectionNotFound, "no host is named"));
        while let Some(answer) = asked.next().await {
            match answer {
                Ok((host, slots)) => {
                    let nodes = slots.nodes();
                    lock(&self.nodes).retain(|host, _| nodes.contains(host));
                    self.connector.learned(host, nodes);
                    *lock(&self.slots) = Known { slots: Some(slots), is_doubtful: false };
                    return Ok(());
                }
                // A node that answers with an error explains more than one that is away.
                Err(error) if error.kind() != Cause::Io || last.kind() != Cause::Io => last = error,
                Err(_) => {}
            }
        }
        if lock(&self.slots).slots.is_some() { Ok(()) } else { Err(last) }
    }

    /// Asks one node for the slots.
    async fn slots_by(&self, host: Host) -> RedisResult<(Host, Slots)> {
        let mut ask = redis::cmd("CLUSTER");
        ask.arg("SLOTS");
        let answer = self.node(&host).send(ask, Delivery::default()).await;
        let (value, _): (Value, _) = answer.map_err(|failure| failure.error)?;
        let nothing =
            || RedisError::from((Cause::ClusterConnectionNotFound, "the cluster serves no slot"));
        let slots = Slots::read(&value, &host).ok_or_else(nothing)?;
        Ok((host, slots))
    }
}
