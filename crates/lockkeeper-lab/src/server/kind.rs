//! The kinds of servers, and whether this machine has them.

use super::tool::{self, Tool};
use std::fmt;

/// Set by `cargo xtask test`: a server that is not there is then a failure.
pub const REQUIRE: &str = "LOCKKEEPER_REQUIRE_SERVERS";

/// A server the lab can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Redis.
    Redis,
    /// Apache ZooKeeper.
    ZooKeeper,
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    MariaDb,
    /// memcached.
    Memcached,
    /// etcd.
    Etcd,
}

/// Why a server cannot be started here, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    kind: Kind,
    tool: Tool,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Redis, Self::ZooKeeper, Self::Postgres, Self::MariaDb, Self::Memcached, Self::Etcd];

    /// Its name in a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::ZooKeeper => "zookeeper",
            Self::Postgres => "postgres",
            Self::MariaDb => "mariadb",
            Self::Memcached => "memcached",
            Self::Etcd => "etcd",
        }
    }

    /// The environment variable that holds the URL of one that is shared by a whole test run.
    #[must_use]
    pub fn variable(self) -> &'static str {
        match self {
            Self::Redis => "LOCKKEEPER_LAB_REDIS",
            Self::ZooKeeper => "LOCKKEEPER_LAB_ZOOKEEPER",
            Self::Postgres => "LOCKKEEPER_LAB_POSTGRES",
            Self::MariaDb => "LOCKKEEPER_LAB_MARIADB",
            Self::Memcached => "LOCKKEEPER_LAB_MEMCACHED",
            Self::Etcd => "LOCKKEEPER_LAB_ETCD",
        }
    }

    /// What must be installed for it.
    #[must_use]
    pub fn tools(self) -> &'static [Tool] {
        match self {
            Self::Redis => &[tool::REDIS],
            Self::ZooKeeper => &[tool::JAVA, tool::ZOOKEEPER],
            Self::Postgres => &[tool::POSTGRES, tool::INITDB],
            Self::MariaDb => &[tool::MARIADB, tool::MARIADB_INSTALL, tool::MARIADB_DEFAULTS],
            Self::Memcached => &[tool::MEMCACHED],
            Self::Etcd => &[tool::ETCD],
        }
    }

    /// Whether it can be started here.
    ///
    /// # Errors
    /// Says what is not installed, and how to install it.
    pub fn available(self) -> Result<(), Missing> {
        match self.tools().iter().find(|tool| tool.find().is_none()) {
            None => Ok(()),
            Some(&tool) => Err(Missing { kind: self, tool }),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, tool } = self;
        write!(formatter, "no {kind}: {} is not installed (cargo xtask setup)", tool.file)
    }
}

impl std::error::Error for Missing {}

/// Why a test that needs these is to be reported as ignored, if it is.
///
/// `None` also where servers are required: the test then runs, and fails with the reason.
#[must_use]
pub fn missing(kinds: &[Kind]) -> Option<Missing> {
    if std::env::var(REQUIRE).is_ok_and(|value| value == "1") {
        return None;
    }
    kinds.iter().find_map(|kind| kind.available().err())
}
