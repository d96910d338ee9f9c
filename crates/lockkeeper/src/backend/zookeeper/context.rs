//! What every recipe is given: the client, and what the options say about nodes.
//!
//! A recipe is a function of a context, a session, a claim and the claim's patience. It keeps nothing
//! of its own between two attempts.

use super::cleanup::observer::Nodes;
use super::client::{Access, Client, Failure};
use super::keys;
use super::layout::{Entry, Layout, SINGLE_NODE};
use super::options::ZooKeeperRecipe;
use super::session::Session;
use crate::backend::{Claim, Mode, Name};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// One opened store.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) client: Client<Nodes>,
    pub(super) recipe: ZooKeeperRecipe,
    pub(super) layout: Layout,
    /// The node that the locks' nodes are below; empty for the top of the tree.
    pub(super) root: String,
    pub(super) access: Access,
    /// The URL without secrets.
    pub(super) shown: Arc<str>,
}

impl Context {
    /// The keeper's session, opened if there is none.
    pub(super) async fn session(&self) -> Result<Arc<Session>> {
        self.client.session().await
    }

    pub(super) fn explain(&self, failure: &Failure) -> Error {
        self.client.explain(failure)
    }

    /// The lock's node.
    pub(super) fn path_of(&self, name: &Name) -> String {
        keys::path_of(&self.root, name)
    }

    /// How long a claim is valid without a renewal: no longer than its session is certain to live.
    pub(super) fn valid_for(&self, session: &Session, claim: &Claim) -> Duration {
        claim.ttl.min(session.certain_for())
    }

    /// The claims among the children of a lock's node, in their order.
    ///
    /// # Errors
    /// When there are claims of another layout or recipe.
    pub(super) fn entries(&self, children: Vec<String>) -> Result<Vec<Entry>> {
        if self.recipe != ZooKeeperRecipe::Ephemeral {
            return self.layout.entries(children);
        }
        // Other children are refused where a claim is made, and passed over where one only looks.
        let only = children.into_iter().find(|child| child == SINGLE_NODE);
        let (mode, number, may_be_doubled) = (Mode::Exclusive, 0, false);
        Ok(only.map(|node| Entry { node, mode, number, may_be_doubled }).into_iter().collect())
    }
}
