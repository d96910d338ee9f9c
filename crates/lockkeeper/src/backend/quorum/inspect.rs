//! Who holds a name, at which of the nodes.

use super::node::Since;
use super::nodes::Nodes;
use crate::backend::{FencingToken, HolderView, Inspector, LockView, Moment, Name, NodeView};
use crate::error::{Error, ErrorKind, Result};
use async_trait::async_trait;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Asks every node; what the majority says is what holds.
#[derive(Debug)]
pub(super) struct QuorumInspector {
    nodes: Arc<Nodes>,
}

impl QuorumInspector {
    pub(super) fn new(nodes: Arc<Nodes>) -> Self {
        Self { nodes }
    }

    /// How long a node may take to tell: there may be much to tell.
    fn limit(&self) -> Duration {
        self.nodes.options.timeout.max(Duration::from_millis(50)) * 20
    }

    /// What `ask` says at each node, or why there is no answer.
    async fn everywhere<'a, T, F>(&'a self, ask: impl Fn(&'a dyn Inspector) -> F) -> Vec<Result<T>>
    where
        F: Future<Output = Result<T>> + 'a,
    {
        let limit = self.limit();
        let answers = self.nodes.all.iter().map(|node| {
            let silent = || {
                let message = format!("{} does not answer", node.shown);
                Err(Error::new(ErrorKind::Unavailable, message))
            };
            let asked = node.backend.inspector().map(&ask);
            async move {
                let Some(asked) = asked else { return silent() };
                tokio::time::timeout(limit, asked).await.unwrap_or_else(|_| silent())
            }
        });
        join_all(answers).await
    }

    /// The answers, if enough nodes gave one.
    fn enough<T>(&self, answers: Vec<Result<T>>) -> Result<Vec<T>> {
        let (mut found, mut reasons, mut other) = (Vec::new(), Vec::new(), None);
        for (number, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok(answer) => found.push(answer),
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    reasons.push((number, error.to_string()));
                }
                Err(error) => other = Some(error),
            }
        }
        match (other, found.len() >= self.nodes.majority()) {
            (_, true) => Ok(found),
            (Some(error), false) => Err(error),
            (None, false) => Err(self.nodes.too_few(found.len(), &reasons)),
        }
    }

    /// What one node has, and whether its vote counts.
    fn node_view(
        &self,
        number: usize,
        answer: Result<LockView>,
        objection: Option<String>,
    ) -> NodeView {
        let mut view = NodeView::new(self.nodes.all[number].shown.clone());
        match answer {
            Ok(found) => (view.holders, view.objection) = (found.holders, objection),
            Err(error) => view.objection = Some(error.to_string()),
        }
        view
    }
}

#[async_trait]
impl Inspector for QuorumInspector {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        let answers = self.everywhere(|inspector| inspector.list(prefix)).await;
        let names: BTreeSet<Name> =
            self.enough(answers)?.into_iter().flatten().map(|view| view.name).collect();
        let mut views = Vec::new();
        for name in names {
            let view = self.show(&name).await?;
            if !view.holders.is_empty() {
                views.push(view);
            }
        }
        Ok(views)
    }

    async fn show(&self, name: &Name) -> Result<LockView> {
        let answers = self.everywhere(|inspector| inspector.show(name)).await;
        let since = Since { sent: Moment::now(), least_uptime: self.nodes.least_uptime() };
        let mut objections = Vec::new();
        for (node, answer) in self.nodes.all.iter().zip(&answers) {
            objections.push(match answer {
                Ok(_) => node.objection(since).await,
                Err(_) => None,
            });
        }
        let answered = answers.iter().filter(|answer| answer.is_ok()).count();
        if answered < self.nodes.majority() {
            return Err(self.enough(answers).err().unwrap_or_else(|| self.nodes.too_few(0, &[])));
        }
        let both = answers.into_iter().zip(objections).enumerate();
        let mut view = LockView::new(name.clone());
        view.nodes = both.map(|(number, (it, why))| self.node_view(number, it, why)).collect();
        view.holders = holders(&view.nodes, self.nodes.majority());
        Ok(view)
    }

    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool> {
        let answers = self.everywhere(|inspector| inspector.break_hold(name, token, reason)).await;
        Ok(self.enough(answers)?.into_iter().any(|broken| broken))
    }
}

/// Those that a majority of the nodes has. A node whose vote does not count may have the claim all the
/// same, and is no argument against it: the holder was granted it by others, or before.
fn holders(nodes: &[NodeView], majority: usize) -> Vec<HolderView> {
    let mut found: Vec<(usize, HolderView)> = Vec::new();
    for holder in nodes.iter().flat_map(|node| &node.holders) {
        // A node that voted after the others may not have been told the token yet.
        match found.iter_mut().find(|(_, it)| it.owner == holder.owner) {
            Some((votes, it)) => {
                *votes += 1;
                it.expires_in = it.expires_in.max(holder.expires_in);
                it.held_for = it.held_for.max(holder.held_for);
                it.token = it.token.max(holder.token);
            }
            None => found.push((1, holder.clone())),
        }
    }
    let votes: usize = found.iter().map(|(votes, _)| votes).sum();
    let by_one_keeper = found.windows(2).all(|pair| pair[0].1.identity == pair[1].1.identity)
        && found.iter().all(|(_, holder)| !holder.identity.is_empty());
    if votes >= majority && by_one_keeper {
        // The name passes from claim to claim of that keeper, and nodes hear of it one by one.
        found.sort_by_key(|(votes, holder)| (holder.token, *votes));
        return found.pop().map(|(_, holder)| holder).into_iter().collect();
    }
    found.into_iter().filter(|(votes, _)| *votes >= majority).map(|(_, holder)| holder).collect()
}
