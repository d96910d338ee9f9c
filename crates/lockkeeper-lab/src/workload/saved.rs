//! Histories on disk: a folder with a file for each process.

use crate::history::{self, Record};
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

fn is_part(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "jsonl")
}

/// Creates the folder of a new history. Two histories in one folder would be read as one.
pub(crate) fn make_room(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    for entry in std::fs::read_dir(folder)? {
        if is_part(&entry?.path()) {
            bail!("{} holds a history already: name another folder", folder.display());
        }
    }
    Ok(())
}

/// The records of one process. A kill may have cut the last line short.
fn read_part(path: &Path) -> Result<Vec<Record>> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    history::read(BufReader::new(&text[..whole]))
        .with_context(|| format!("{} is no history", path.display()))
}

/// Reads a saved history: a file, or a folder of them.
///
/// # Errors
/// When it cannot be read, or is not a history.
pub fn load(path: &Path) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    if path.is_dir() {
        let mut parts = 0;
        for entry in std::fs::read_dir(path)? {
            let path = entry?.path();
            if is_part(&path) {
                parts += 1;
                records.extend(read_part(&path)?);
            }
        }
        if parts == 0 {
            bail!("{} holds no history: there is no .jsonl file in it", path.display());
        }
    } else {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        records = history::read(BufReader::new(file))
            .with_context(|| format!("{} is no history", path.display()))?;
    }
    records.sort_by_key(|record| record.at);
    Ok(records)
}
