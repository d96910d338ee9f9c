//! The nodes of a cluster, each on a connection of its own.
//!
//! The driver's own connection to a cluster was rejected: while it looks for one node it serves
//! none, so that a node that is silent takes the locks on all others with it; and it repeats
//! commands without saying so.

use super::link::Form;
use super::node::{Answer, Failed, Manner, Node};
use super::roll::{Roll, lock};
use super::route::{Host, Route};
use super::slots::{Slots, redirected};
use super::trouble::{self, Remedy};
use crate::backend::Moment;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{Cmd, ErrorKind as Cause, RedisError, RedisResult, ServerErrorKind, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Another node is asked for the slots when one has not answered for so long.
const NEXT_ASKED: Duration = Duration::from_millis(100);
/// Pauses before a node is asked again that cannot answer now.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));
/// So many redirections in a row are followed without a pause.
const REDIRECTIONS: u32 = 4;

#[derive(Default)]
pub(super) struct Cluster {
    nodes: Mutex<HashMap<Host, Arc<Node>>>,
    /// `None` until a node has told, or when they may have changed.
    slots: Mutex<Known>,
    /// So that many who do not know ask once.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    slots: Option<Slots>,
    is_doubtful: bool,
}

/// What to do after an error.
enum Next {
    /// To this node, for a slot that it does not quite have yet or that is its own by now.
    Go(Host, Manner),
    /// To whoever has the slot, at once or after a pause.
    Retry {
        pause: bool,
    },
    GiveUp,
}

impl Cluster {
    /// Sends a command to the node of a slot, or to any.
    pub(super) async fn send(
        &self,
        route: &Route,
        roll: Option<&Roll>,
        slot: Option<u16>,
        make: &(dyn Fn(Form) -> Cmd + Sync),
        manner: Manner,
    ) -> RedisResult<Answer> {
        let end = Moment::now() + route.timeout();
        let (mut form, mut pause, mut redirections) = (Form::default(), PAUSES.0, 0);
        let mut led = None;
        loop {
            let (host, how) = match led.take() {
                Some(led) => led,
                None => (self.host_of(route, slot).await?, manner),
            };
            let failed = match self.node(&host).send(route, roll, make(form), how).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            let pauses = match self.after(&failed, slot, &host, how, &mut form) {
                Next::GiveUp => return Err(failed.error),
                Next::Go(host, how) => {
                    redirections += 1;
                    led = (redirections < REDIRECTIONS).then_some((host, how));
                    led.is_none()
                }
                Next::Retry { pause } => pause,
            };
            if pauses {
                if end.remaining() < pause {
                    return Err(failed.error);
                }
                redirections = 0;
                (Moment::now() + pause).reached().await;
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    }

    fn after(
        &self,
        Failed { error, sent }: &Failed,
        slot: Option<u16>,
        host: &Host,
        how: Manner,
        form: &mut Form,
    ) -> Next {
        let plain = Manner { asking: false, ..how };
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
                Some(to) => Next::Go(to, Manner { asking: true, ..how }),
                None => Next::GiveUp,
            },
            // The slot is on its way, and keys that do not exist count as moved.
            _ if trouble::is_moving(error) => {
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
            _ => match trouble::remedy(error) {
                Remedy::None => Next::GiveUp,
                // Closed since the last command; or by a node that is about to be gone.
                Remedy::Reconnect if *sent && !form.again => {
                    form.again = true;
                    Next::Retry { pause: false }
                }
                // Perhaps another has taken over, or is about to.
                Remedy::Reconnect => {
                    self.doubt();
                    Next::Retry { pause: true }
                }
                Remedy::LetGo => {
                    self.doubt();
                    Next::GiveUp
                }
            },
        }
    }

    /// Every primary.
    pub(super) async fn primaries(&self, route: &Route) -> RedisResult<Vec<Host>> {
        self.learn(route).await?;
        Ok(lock(&self.slots).slots.as_ref().map(Slots::primaries).unwrap_or_default())
    }

    pub(super) fn node(&self, host: &Host) -> Arc<Node> {
        let mut nodes = lock(&self.nodes);
        match nodes.get(host) {
            Some(node) => node.clone(),
            None => {
                let node = Arc::new(Node::at(host.clone()));
                nodes.insert(host.clone(), node.clone());
                node
            }
        }
    }

    async fn host_of(&self, route: &Route, slot: Option<u16>) -> RedisResult<Host> {
        self.learn(route).await?;
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

    /// What is known may be wrong by now.
    fn doubt(&self) {
        lock(&self.slots).is_doubtful = true;
    }

    fn is_certain(&self) -> bool {
        let known = lock(&self.slots);
        known.slots.is_some() && !known.is_doubtful
    }

    /// Asks who has which slots, unless that is known: one node, and another if that is slow. What
    /// was known stays if none answers.
    async fn learn(&self, route: &Route) -> RedisResult<()> {
        if self.is_certain() {
            return Ok(());
        }
        let _alone = self.asking.lock().await;
        if self.is_certain() {
            return Ok(());
        }
        let mut asked: FuturesUnordered<_> = route
            .hosts()
            .into_iter()
            .enumerate()
            .map(|(place, host)| async move {
                let place = u32::try_from(place).unwrap_or(u32::MAX);
                tokio::time::sleep(NEXT_ASKED.saturating_mul(place)).await;
                self.slots_by(route, host).await
            })
            .collect();
        let mut last = RedisError::from((Cause::ClusterConnectionNotFound, "no host is named"));
        while let Some(answer) = asked.next().await {
            match answer {
                Ok((host, slots)) => {
                    let nodes = slots.nodes();
                    lock(&self.nodes).retain(|host, _| nodes.contains(host));
                    route.learned(host, nodes);
                    *lock(&self.slots) = Known { slots: Some(slots), is_doubtful: false };
                    return Ok(());
                }
                // One that answers is told of rather than one that is away.
                Err(error) if error.kind() != Cause::Io || last.kind() != Cause::Io => last = error,
                Err(_) => {}
            }
        }
        if lock(&self.slots).slots.is_some() { Ok(()) } else { Err(last) }
    }

    async fn slots_by(&self, route: &Route, host: Host) -> RedisResult<(Host, Slots)> {
        let mut ask = redis::cmd("CLUSTER");
        ask.arg("SLOTS");
        let answer = self.node(&host).send(route, None, ask, Manner::default()).await;
        let (value, _): (Value, _) = answer.map_err(|failed| failed.error)?;
        let nothing =
            || RedisError::from((Cause::ClusterConnectionNotFound, "the cluster serves no slot"));
        let slots = Slots::read(&value, &host).ok_or_else(nothing)?;
        Ok((host, slots))
    }
}
