//! Names that are known to have a row, which are taken by a shorter statement.

use crate::backend::support::sync::lock;
use std::collections::HashSet;
use std::sync::Mutex;

/// How many names are remembered. When there are more, all are forgotten: what that costs is one
/// longer statement for each.
const MOST: usize = 4096;

/// Names that have a row, unless it was cleaned away since.
///
/// A name whose row was cleaned away looks like one that others have. The claim that reads it then
/// finds no row, and asks again: by then it is forgotten here, and taken as a new name.
#[derive(Debug, Default)]
pub(in super::super) struct KnownNames(Mutex<HashSet<Box<str>>>);

impl KnownNames {
    pub(in super::super) fn contains(&self, name: &str) -> bool {
        lock(&self.0).contains(name)
    }

    pub(in super::super) fn add(&self, name: &str) {
        let mut known = lock(&self.0);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(name.into());
    }

    pub(in super::super) fn forget(&self, name: &str) {
        lock(&self.0).remove(name);
    }
}
