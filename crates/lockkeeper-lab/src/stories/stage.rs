//! What every story works with.

use crate::server::Lab;
use anyhow::Result;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// The lab, and how stories are told.
#[derive(Debug)]
pub struct Stage {
    /// Where servers come from.
    pub lab: Lab,
    /// The program whose `act` is a client: `lab`.
    pub program: PathBuf,
    /// Whether to show it in full size, with a thousand waiters and in every store, rather than what
    /// takes seconds.
    pub whole: bool,
    /// Whether to print the steps as they happen.
    pub aloud: bool,
    histories: AtomicU64,
}

impl Stage {
    /// Opens a lab.
    ///
    /// # Errors
    /// When its folder cannot be made.
    pub fn open(program: PathBuf, whole: bool, aloud: bool) -> Result<Self> {
        let lab = Lab::open()?;
        Ok(Self { lab, program, whole, aloud, histories: AtomicU64::new(0) })
    }

    pub(super) fn print(&self, line: &str) {
        if self.aloud {
            println!("{line}");
        }
    }

    pub(super) fn new_history(&self) -> PathBuf {
        let number = self.histories.fetch_add(1, Ordering::SeqCst);
        self.lab.folder().join(format!("story-{number}.jsonl"))
    }
}
