//! The libraries on Redis that share a lock's layout with one of our recipes.

mod plain;

use super::install::Cache;
use libtest_mimic::Trial;
use std::path::Path;
use std::sync::Arc;

/// The trials of every library, on the server at `url`. What they write is in `folder`, which is
/// cleared away by who made it.
pub fn trials(url: &str, cache: &Arc<Cache>, folder: &Path) -> Vec<Trial> {
    plain::trials(url, cache, folder)
}
