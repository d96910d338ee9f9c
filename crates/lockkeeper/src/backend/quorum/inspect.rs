//! Who holds a name, at which of the nodes.

use super::node::{Node, Since};
use super::nodes::Nodes;
use crate::backend::support::list::{self, no_page};
use crate::backend::{FencingToken, HolderView, Inspector, LockView, Moment, Name, NodeView, Page};
use crate::error::{Error, ErrorKind, Result};
use async_trait::async_trait;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How many names of a page are asked of a node at once, so that it can answer within the limit.
const PAGE: usize = 500;

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
    async fn everywhere<'a, T, F>(
        &'a self,
        ask: impl Fn(&'a dyn Inspector) -> F + Send + Sync,
    ) -> Vec<Result<T>>
    where
        T: Send,
        F: Future<Output = Result<T>> + Send + 'a,
    {
        join_all(self.nodes.all.iter().map(|node| at(node, self.limit(), &ask))).await
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

    /// Node by node. A name that a majority has is at one of any `wanted` nodes, so that after as many
    /// which told all they have every such name was seen.
    async fn list_page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        let all = &self.nodes.all;
        let wanted = all.len() - self.nodes.majority() + 1;
        let mut place = after.map_or_else(|| Ok(Place::default()), Place::read)?;
        let node = all.get(place.node).ok_or_else(no_page)?;
        let inner = place.inner.take();
        let page = at(node, 10 * self.limit(), &|inspector| {
            inspector.list_page(prefix, inner.as_deref(), limit.min(PAGE))
        })
        .await;
        let mut page = match page {
            Ok(page) => page,
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                if place.told.len() + all.len() - place.node <= wanted {
                    let reason = (place.node, error.to_string());
                    return Err(self.nodes.too_few(place.told.len(), &[reason]));
                }
                place.node += 1;
                return Ok(Page::new(Vec::new(), Some(place.to_string())));
            }
            Err(error) => return Err(error),
        };
        let names = page.locks.drain(..).map(|view| view.name);
        let shown = |name: Name| async move { self.show(&name).await };
        let mut views = list::shown(names, ErrorKind::Store, shown).await?;
        // What a node before has was shown with what that node told.
        let earlier =
            |view: &LockView| place.told.iter().any(|&it| !view.nodes[it].holders.is_empty());
        views.retain(|view| !view.holders.is_empty() && !earlier(view));
        if page.next.is_none() {
            place.told.push(place.node);
            place.node += 1;
        }
        let is_last = place.told.len() >= wanted;
        place.inner = page.next;
        Ok(Page::new(views, Some(place.to_string()).filter(|_| !is_last)))
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

/// What `ask` says at one node, or why there is no answer.
async fn at<'a, T, F>(
    node: &'a Node,
    limit: Duration,
    ask: &(impl Fn(&'a dyn Inspector) -> F + Sync),
) -> Result<T>
where
    F: Future<Output = Result<T>> + Send + 'a,
{
    let silent = || {
        let message = format!("{} does not answer", node.shown);
        Err(Error::new(ErrorKind::Unavailable, message))
    };
    let Some(asked) = node.backend.inspector().map(ask) else { return silent() };
    tokio::time::timeout(limit, asked).await.unwrap_or_else(|_| silent())
}

/// Where the next page begins.
#[derive(Debug, Default)]
struct Place {
    /// The nodes that told all they have.
    told: Vec<usize>,
    /// The node that is asked next.
    node: usize,
    /// The end of the page before, at that node.
    inner: Option<String>,
}

impl Place {
    fn read(text: &str) -> Result<Self> {
        let mut parts = text.splitn(3, '/');
        let mut part = || parts.next().ok_or_else(no_page);
        let told = part()?.split('.').filter(|number| !number.is_empty());
        let told = told.map(str::parse).collect::<std::result::Result<Vec<_>, _>>();
        let node = part()?.parse().map_err(|_| no_page())?;
        let inner = Some(part()?.to_owned()).filter(|inner| !inner.is_empty());
        let told: Vec<usize> = told.map_err(|_| no_page())?;
        // The nodes before are gone through in order.
        if told.iter().any(|it| *it >= node) {
            return Err(no_page());
        }
        Ok(Self { told, node, inner })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told: Vec<String> = self.told.iter().map(ToString::to_string).collect();
        write!(f, "{}/{}/{}", told.join("."), self.node, self.inner.as_deref().unwrap_or_default())
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
