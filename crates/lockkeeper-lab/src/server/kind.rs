//! The kinds of servers, and whether they are installed on this machine.

use super::tool::{self, Tool};
use std::fmt;

/// Set by `cargo xtask test`: a missing server is then a failure.
pub const REQUIRE: &str = "LOCKKEEPER_REQUIRE_SERVERS";

/// A server the lab can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Redis.
    Redis,
    /// Five independent Redis servers.
    Redlock,
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

/// Everything about a kind, in one place.
struct Row {
    word: &'static str,
    port: u16,
    variable: &'static str,
    tools: &'static [Tool],
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Redis,
        Self::Redlock,
        Self::ZooKeeper,
        Self::Postgres,
        Self::MariaDb,
        Self::Memcached,
        Self::Etcd,
    ];

    /// Its name, which is also the scheme of its URLs.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.row().word
    }

    /// Its default port.
    #[must_use]
    pub fn usual_port(self) -> u16 {
        self.row().port
    }

    /// The environment variable with the URL of a server that a whole test run shares.
    #[must_use]
    pub fn variable(self) -> &'static str {
        self.row().variable
    }

    /// What must be installed for it.
    #[must_use]
    pub fn tools(self) -> &'static [Tool] {
        self.row().tools
    }

    fn row(self) -> Row {
        match self {
            Self::Redis => Row {
                word: "redis",
                port: 6379,
                variable: "LOCKKEEPER_LAB_REDIS",
                tools: &[tool::REDIS],
            },
            Self::Redlock => Row {
                word: "redlock",
                port: 6379,
                variable: "LOCKKEEPER_LAB_REDLOCK",
                tools: &[tool::REDIS],
            },
            Self::ZooKeeper => Row {
                word: "zookeeper",
                port: 2181,
                variable: "LOCKKEEPER_LAB_ZOOKEEPER",
                tools: &[tool::JAVA, tool::ZOOKEEPER],
            },
            Self::Postgres => Row {
                word: "postgres",
                port: 5432,
                variable: "LOCKKEEPER_LAB_POSTGRES",
                tools: &[tool::POSTGRES, tool::INITDB],
            },
            Self::MariaDb => Row {
                word: "mariadb",
                port: 3306,
                variable: "LOCKKEEPER_LAB_MARIADB",
                tools: &[tool::MARIADB, tool::MARIADB_INSTALL, tool::MARIADB_DEFAULTS],
            },
            Self::Memcached => Row {
                word: "memcached",
                port: 11211,
                variable: "LOCKKEEPER_LAB_MEMCACHED",
                tools: &[tool::MEMCACHED],
            },
            Self::Etcd => Row {
                word: "etcd",
                port: 2379,
                variable: "LOCKKEEPER_LAB_ETCD",
                tools: &[tool::ETCD],
            },
        }
    }

    /// Whether it can be started on this machine.
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

/// Why a test that needs these servers must be reported as ignored, if so.
///
/// `None` also if servers are required: the test then runs, and fails with the reason.
#[must_use]
pub fn missing(kinds: &[Kind]) -> Option<Missing> {
    if std::env::var(REQUIRE).is_ok_and(|value| value == "1") {
        return None;
    }
    kinds.iter().find_map(|kind| kind.available().err())
}
