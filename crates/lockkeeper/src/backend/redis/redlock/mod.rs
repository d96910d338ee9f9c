//! `redlock://`: what a [quorum](crate::backend::quorum) of Redis servers is made of.
//!
//! Each server has one key per lock, a string that ends by itself, which is the layout of
//! `recipe=set-nx-px` and of redsync, rslock and node-redlock: they keep each other out on the same
//! servers. Beside the locks there is one key for tokens on each server.
//!
//! ```text
//!   options.rs    what a URL or a RedlockOptions says
//!   node.rs       one server: a backend that votes      life.rs      since when it is up
//!   requests.rs   its requests, in Lua                   keys.rs, record.rs   name ↔ key, claim ↔ value
//! ```
//!
//! What is asked of a node and how answers are counted is none of Redis' business, and is in
//! [`quorum`](crate::backend::quorum).

mod keys;
mod life;
mod node;
mod options;
mod record;
mod requests;

use super::client::{Client, Connector};
use crate::backend::quorum::Quorum;
use crate::backend::{Backend, Background};
use crate::error::Result;
use keys::Keys;
use node::{NodeSettings, RedlockNode};
pub use options::RedlockOptions;
use requests::Requests;
use std::sync::Arc;

/// Opens all nodes, of which a minority may be down.
async fn open(options: RedlockOptions, background: &Background) -> Result<Arc<dyn Backend>> {
    let (shown, votes) = (options.shown(), options.votes());
    // All of them on one thread, where the quorum asks.
    let home = background.at_home();
    let backends = options.nodes.iter().map(|node| -> Arc<dyn Backend> {
        let shown = node.shown();
        let connect = node.connect_options(&home);
        let connector = Connector::new(node.topology.clone(), connect, shown.clone());
        let requests = Requests::new(Client::new(connector, 0), Keys::new(options.prefix.clone()));
        let allow_eviction = node.allow_eviction;
        let settings = NodeSettings { token: options.token, allow_eviction, shown };
        Arc::new(RedlockNode::new(requests, settings))
    });
    let quorum = Quorum::shown_as(backends.collect(), votes, Some(shown))?;
    quorum.attach(background);
    quorum.check().await?;
    Ok(Arc::new(quorum))
}
