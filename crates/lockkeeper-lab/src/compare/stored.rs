//! A run as it is stored: everything that the pages are made of.

use super::cell::Cell;
use super::machine::Machine;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// One recipe of ours, or one other library, on one store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The store, as a URL names it.
    pub store: String,
    /// The recipe, or the library.
    pub name: String,
    /// Of a library its version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Whether it is a recipe of ours.
    pub ours: bool,
    /// How far its locks reach.
    pub reach: String,
    /// How long a small write took to reach the disk just before, in seconds: what commits wait for.
    pub flush: Option<f64>,
    /// How long it took to measure, in seconds: what the next run's estimate is made of.
    pub seconds: f64,
    /// What was measured, by the key of the column.
    pub cells: BTreeMap<String, Cell>,
}

impl Row {
    /// Store and name, by which a row is found again.
    #[must_use]
    pub fn key(&self) -> (&str, &str) {
        (&self.store, &self.name)
    }

    /// A cell; one that is missing is unknown.
    #[must_use]
    pub fn cell(&self, key: &str) -> Cell {
        self.cells.get(key).cloned().unwrap_or_else(|| Cell::Unknown("not measured".to_owned()))
    }

    /// The figure of a cell, if it has one.
    #[must_use]
    pub fn figure(&self, key: &str) -> Option<f64> {
        self.cells.get(key).and_then(Cell::figure)
    }
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredRun {
    /// When it began.
    pub date: String,
    /// Where it ran.
    pub machine: Machine,
    /// Whether its windows were shortened: to try it out, not to publish.
    pub quick: bool,
    /// What was measured.
    pub rows: Vec<Row>,
}

impl StoredRun {
    /// The row of this store and name.
    #[must_use]
    pub fn row(&self, key: (&str, &str)) -> Option<&Row> {
        self.rows.iter().find(|row| row.key() == key)
    }
}

/// A run, and the one that was made to see how far figures move from run to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The run that the pages tell of.
    pub first: StoredRun,
    /// The second run.
    pub again: Option<StoredRun>,
}

/// Reads a stored value; `None` when there is no such file.
///
/// # Errors
/// When it cannot be read, or is something else.
pub fn load<T: for<'de> Deserialize<'de>>(file: &Path) -> Result<Option<T>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    let stored = serde_json::from_str(&text);
    stored.map(Some).with_context(|| format!("{} is no stored run", file.display()))
}

/// Stores a value in one step: a run that is killed meanwhile leaves what was there.
///
/// # Errors
/// When the file cannot be written.
pub fn save<T: Serialize>(file: &Path, value: &T) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    write(file, &text)
}

/// Writes a text in one step.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write(file: &Path, text: &str) -> Result<()> {
    let failed = || format!("cannot write {}", file.display());
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).with_context(failed)?;
    }
    let beside = file.with_extension("part");
    std::fs::write(&beside, text).with_context(failed)?;
    std::fs::rename(&beside, file).with_context(failed)
}
