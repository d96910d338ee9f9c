//! What a `sqlite:` URL says. Nothing here touches the file, except through [`OpenStore::open`].

use super::{Sqlite, schema};
use crate::address::Address;
use crate::backend::support::options::config;
use crate::backend::{Backend, Background, OpenStore};
use crate::error::{Error, ErrorKind, Result};
use crate::patience::OUTAGE;
use async_trait::async_trait;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Where the file is; see [`connect_with`](crate::connect_with).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// The file; `None` for the default place of this user.
    pub path: Option<PathBuf>,
    /// How long a claim that waits puts up with a file that cannot be used.
    pub outage: Duration,
}

impl SqliteOptions {
    /// Locks in the file at `path`, which is made if it is not there.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: Some(path.into()), outage: OUTAGE }
    }

    /// Reads the part after `sqlite:`; checks its form only.
    ///
    /// Two mistakes that other SQLite URLs invite are refused here. `sqlite::memory:` would give
    /// every process a table of its own, so its locks would exclude nobody. `sqlite://locks.db`
    /// names a host, while the file must be on this machine: SQLite's locks are not reliable on
    /// network file systems.
    pub(crate) fn read(address: &Address) -> Result<Self> {
        address.only_options(&[])?;
        let path = match address.authority.as_deref() {
            None | Some("") if address.path.is_empty() => None,
            None | Some("") if address.path.starts_with(':') => {
                return Err(config(
                    "sqlite: keeps locks in a file: for locks in memory use memory:",
                ));
            }
            None | Some("") => Some(PathBuf::from(&address.path)),
            Some(_) => {
                return Err(config(
                    "sqlite: names a file of this machine, without a host: write \
                     sqlite:relative/path or sqlite:/absolute/path",
                ));
            }
        };
        Ok(Self { path, outage: OUTAGE })
    }

    /// The file, wherever the process goes later: a program that changes its working directory and
    /// then reopens the file after `close` must meet the same file again.
    pub(super) fn absolute_path(self) -> Result<PathBuf> {
        let path = self.path.map_or_else(schema::default_path, Ok)?;
        std::path::absolute(&path)
            .map_err(|error| config("the current folder cannot be told").caused_by(error))
    }
}

#[async_trait]
impl OpenStore for SqliteOptions {
    async fn open(self: Box<Self>, background: &Background) -> Result<Arc<dyn Backend>> {
        // On a thread that may block: opening waits for a file that another process is just making,
        // and may have to replay a log that a killed process left.
        let home = background.clone();
        let opened = background.handle()?.spawn_blocking(move || Sqlite::open(*self, &home)).await;
        let ended = |_| Err(Error::new(ErrorKind::Unavailable, "the background thread ended"));
        Ok(Arc::new(opened.unwrap_or_else(ended)?))
    }

    fn outage(&self) -> Duration {
        self.outage
    }
}
