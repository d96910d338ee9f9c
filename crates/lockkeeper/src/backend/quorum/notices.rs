//! Hearing that a name may be free, for one who waits.
//!
//! A release is told at every node. It is enough to listen to one of them, the first that answers and
//! can tell; to listen to all would be a second connection to each. Nothing depends on it: other
//! libraries tell nobody, and what is missed is found by asking again, as without it.

use super::nodes::Nodes;
use crate::backend::{Moment, Name, Released};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// For how long it is not tried again to listen, once that has failed: a user may not be let.
const DEAF: Duration = Duration::from_secs(3);

/// What one claim that waits hears.
pub(super) struct Notices {
    nodes: Arc<Nodes>,
    name: Name,
    /// The node that is listened to. Kept until it resolves, also while nobody waits for it: a request
    /// to subscribe must not be given up halfway, and a notice that comes meanwhile counts.
    told: Option<(usize, Released)>,
    deaf_until: Option<Moment>,
}

impl Notices {
    /// Of the name; nobody is listened to yet.
    pub(super) fn new(nodes: &Arc<Nodes>, name: &Name) -> Self {
        Self { nodes: nodes.clone(), name: name.clone(), told: None, deaf_until: None }
    }

    /// Listens to a node that answers, if one can tell. To be called before the nodes are asked, so that
    /// a release after that is heard.
    pub(super) fn listen(&mut self) {
        let nodes = &self.nodes.all;
        self.told.take_if(|(number, _)| nodes[*number].silence.is_silent());
        let deaf = self.deaf_until.is_some_and(|until| !until.remaining().is_zero());
        if self.told.is_none() && !deaf {
            let answering = nodes.iter().enumerate().filter(|(_, node)| !node.silence.is_silent());
            let mut telling = answering.filter_map(|(number, node)| {
                Some((number, node.backend.voter()?.released(&self.name)?))
            });
            self.told = telling.next();
        }
    }

    /// Resolves when the name may be free at a node, with its number; never where nobody is listened to.
    pub(super) async fn told(&mut self) -> usize {
        if let Some((number, told)) = &mut self.told {
            let outcome = told.await;
            let number = *number;
            let node = &self.nodes.all[number].shown;
            self.told = None;
            match outcome {
                Ok(()) => return number,
                Err(error) => {
                    tracing::debug!(node, %error, "a node is not heard");
                    self.deaf_until = Some(Moment::now() + DEAF);
                }
            }
        }
        std::future::pending().await
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notices").field("name", &self.name).finish_non_exhaustive()
    }
}
