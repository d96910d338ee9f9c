//! Data folders that are created once and then copied.

use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

type Slot = Arc<Mutex<Option<PathBuf>>>;

#[derive(Debug, Default)]
pub(crate) struct Templates {
    slots: Mutex<HashMap<&'static str, Slot>>,
}

impl Templates {
    /// The folder of this name. The first caller creates it; other callers for the same name wait.
    pub(crate) fn get(
        &self,
        name: &'static str,
        make: impl FnOnce() -> Result<PathBuf>,
    ) -> Result<PathBuf> {
        let slot: Slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.entry(name).or_default().clone()
        };
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = &*slot {
            return Ok(folder.clone());
        }
        let folder = make().with_context(|| format!("cannot prepare the data of {name}"))?;
        Ok(slot.insert(folder).clone())
    }
}

/// Copies the contents of a folder into another, with their owners.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    let output = Command::new("cp")
        .args(["--archive", "--reflink=auto"])
        .arg(from.join("."))
        .arg(to)
        .stdin(Stdio::null())
        .output()
        .context("cannot run cp")?;
    if !output.status.success() {
        bail!("cannot copy a data folder: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
