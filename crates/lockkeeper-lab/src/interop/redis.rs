//! The libraries on Redis that share a lock's layout with one of our recipes.

mod plain;
mod redisson;

use super::install::Cache;
use crate::server::{Cluster, Server};
use anyhow::Result;
use libtest_mimic::Trial;
use std::path::Path;
use std::sync::Arc;

/// The trials of every library, on the server at `url`. What they write is in `folder`, which is
/// cleared away by who made it.
pub(super) fn trials(url: &str, cache: &Arc<Cache>, folder: &Path) -> Vec<Trial> {
    let mut trials = plain::trials(url, cache, folder);
    trials.extend(redisson::trials(url, cache, folder));
    trials
}

/// Those of libraries that do it in another way in a cluster.
pub(super) fn trials_in_a_cluster(
    cluster: &Cluster,
    cache: &Arc<Cache>,
    folder: &Path,
) -> Vec<Trial> {
    let hosts: Vec<_> = cluster.nodes.iter().map(Server::address).collect();
    let url = format!("redis+cluster://{}", hosts.join(","));
    redisson::trials_in_a_cluster(&url, cache, folder)
}

/// How fast we and they are, in passing: figures that count are those of `cargo xtask bench`.
///
/// # Errors
/// When a peer fails.
pub(super) fn figures(url: &str, cache: &Cache) -> Result<()> {
    redisson::figures(url, cache)
}
