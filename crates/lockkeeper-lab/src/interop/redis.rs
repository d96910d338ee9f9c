//! The libraries on Redis that use the same lock layout as one of our recipes.

mod plain;
mod redisson;

use super::install::Cache;
use crate::server::{Cluster, Server};
use anyhow::Result;
use libtest_mimic::Trial;
use std::path::Path;
use std::sync::Arc;

/// The trials of every library, on the server at `url`. They write files to `folder`, which the
/// caller removes.
pub(super) fn trials(url: &str, cache: &Arc<Cache>, folder: &Path) -> Vec<Trial> {
    let mut trials = plain::trials(url, cache, folder);
    trials.extend(redisson::trials(url, cache, folder));
    trials
}

/// The trials of libraries that lock on several servers that know nothing of each other.
pub(super) fn trials_on_several(url: &str, cache: &Arc<Cache>, folder: &Path) -> Vec<Trial> {
    plain::trials_on_several(url, cache, folder)
}

/// The trials of libraries that behave differently in a cluster.
pub(super) fn trials_in_a_cluster(
    cluster: &Cluster,
    cache: &Arc<Cache>,
    folder: &Path,
) -> Vec<Trial> {
    let hosts: Vec<_> = cluster.nodes.iter().map(Server::address).collect();
    let url = format!("redis+cluster://{}", hosts.join(","));
    redisson::trials_in_a_cluster(&url, cache, folder)
}

/// A rough comparison of speed: the figures that count are those of `cargo xtask bench`.
///
/// # Errors
/// When a peer fails.
pub(super) fn figures(url: &str, cache: &Cache) -> Result<()> {
    redisson::figures(url, cache)
}
