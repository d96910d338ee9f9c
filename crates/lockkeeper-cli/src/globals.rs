//! What can be said before or behind every verb.

use crate::config::{self, Config, Store};
use crate::exit::Failure;
use clap::{Args, ValueEnum};
use std::env::VarError;
use std::path::PathBuf;

/// Where the global options stand in a help text: behind those of the verb.
const HEADING: &str = "Global options";
/// Names the store where no option does.
pub(crate) const STORE_VARIABLE: &str = "LOCKKEEPER_STORE";

/// The store. Verbs that use one have it among their arguments; the top level has it, too, so that it
/// can stand before the verb.
#[derive(Debug, Args)]
pub(crate) struct StoreArguments {
    /// The store that keeps the locks and counts the ids: a URL, see `lockkeeper recipes`, or a name in
    /// the configuration file [env: LOCKKEEPER_STORE] [default: sqlite:]
    ///
    /// A password given here can be seen in the list of processes; in the variable or in the file it
    /// cannot.
    // The variable is not left to clap, which would show the option in usage lines as if it were
    // required whenever the variable is set.
    #[arg(long, global = true, value_name = "URL", help_heading = HEADING)]
    store: Option<String>,

    /// The configuration file; see `lockkeeper --help` [env: LOCKKEEPER_CONFIG]
    #[arg(long, global = true, value_name = "FILE", help_heading = HEADING, value_hint = clap::ValueHint::FilePath)]
    config: Option<PathBuf>,
}

impl StoreArguments {
    /// The URL of the store, with its password.
    pub(crate) fn url(&self) -> Result<String, Failure> {
        match self.given()? {
            // A file that is broken is in nobody's way who does not need it.
            Some(url) if config::is_url(&url) => Ok(url),
            _ => Ok(self.find(&self.config()?)?.url),
        }
    }

    /// What the configuration file says.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        config::find(self.config.as_deref())
    }

    /// The store: what the option says, or else the variable, or else the file.
    pub(crate) fn find(&self, config: &Config) -> Result<Store, Failure> {
        let given = self.given()?;
        config.store(given.as_deref().or(config.default_store()).unwrap_or(crate::store::DEFAULT))
    }

    /// What the option says, or else the variable; a variable that is set to nothing counts as not set.
    fn given(&self) -> Result<Option<String>, Failure> {
        if self.store.is_some() {
            return Ok(self.store.clone());
        }
        match std::env::var(STORE_VARIABLE) {
            Ok(store) => Ok(Some(store).filter(|store| !store.is_empty())),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => {
                Err(Failure::usage(format!("{STORE_VARIABLE} is not UTF-8")))
            }
        }
    }
}

/// How much is said, and how it looks.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Manner {
    /// Print neither whom we wait for nor warnings; errors and a lost lock are still told
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = HEADING)]
    pub(crate) quiet: bool,

    /// Print when a lock was acquired and given back, and after how long
    #[arg(short, long, global = true, help_heading = HEADING)]
    pub(crate) verbose: bool,

    /// How messages and logs are written to stderr
    ///
    /// The variable RUST_LOG chooses what is logged, for example RUST_LOG=lockkeeper=debug. Only
    /// lockkeeper itself logs: what the libraries in it would log can contain passwords.
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text", help_heading = HEADING)]
    pub(crate) log_format: LogFormat,

    /// When to use colour; `auto` is on a terminal, unless the variable NO_COLOR is set
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", help_heading = HEADING)]
    color: Color,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

impl Manner {
    /// Whether to write colours to an output that is a terminal or not.
    pub(crate) fn is_colorful(&self, on_terminal: bool) -> bool {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => on_terminal && !set("NO_COLOR") && !is_dumb,
        }
    }
}
