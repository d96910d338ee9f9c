//! The libraries on Redis that share a lock's layout with one of our recipes.

mod plain;

use super::install::Cache;
use libtest_mimic::Trial;
use std::sync::Arc;

/// The trials of every library, on the server at `url`.
pub fn trials(url: &str, cache: &Arc<Cache>) -> Vec<Trial> {
    plain::trials(url, cache)
}
