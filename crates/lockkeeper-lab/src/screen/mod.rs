//! A picture of a terminal, made of a session that really took place: what was typed, what was printed,
//! and when.

mod record;
mod render;

pub use record::record;
pub use render::render;

use crate::compare::load;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What was seen in a few terminals at the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// The terminals, in the order in which they are drawn: two beside each other, then one below.
    pub panes: Vec<Pane>,
    /// How long it took, in milliseconds.
    pub length_ms: u64,
}

/// One terminal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pane {
    /// What is written above it.
    pub title: String,
    /// Its lines.
    pub lines: Vec<Line>,
}

/// One line of a terminal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// When it came, in milliseconds since the beginning.
    pub at_ms: u64,
    /// Whether a person typed it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub typed: bool,
    /// What it says.
    pub text: String,
}

/// What `lab screen` is asked.
#[derive(Debug, clap::Args)]
pub struct ScreenArguments {
    /// The `lockkeeper` to run
    #[arg(long)]
    program: Option<PathBuf>,
    /// Draw the stored session again instead of recording one
    #[arg(long)]
    render: bool,
}

/// Where the pictures of the README are.
#[must_use]
pub fn pictures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures")
}

/// Records a session and draws it.
///
/// # Errors
/// When the program cannot be run, or nothing was stored that could be drawn.
pub fn run(arguments: &ScreenArguments) -> Result<()> {
    let stored = pictures().join("terminal.json");
    if !arguments.render {
        let program =
            arguments.program.as_ref().context("name the lockkeeper to run: --program")?;
        let session = record(program)?;
        std::fs::create_dir_all(pictures())?;
        std::fs::write(&stored, serde_json::to_string_pretty(&session)? + "\n")?;
    }
    let session: Session = load(&stored)?.context("there is no stored session")?;
    let file = pictures().join("terminal.svg");
    std::fs::write(&file, render(&session))?;
    println!("made {}", file.display());
    Ok(())
}
