//! Every recipe there is, with what it promises: the one list of stores in the library.
//!
//! Here and not in the stores' folders, so that a store can be told of even when it is compiled
//! out. Each block is one store: its rows, then its capabilities.

use crate::backend::{Capability, Reach};
use crate::error::{Error, ErrorKind};
use crate::similar::did_you_mean;
use std::time::Duration;

/// One way of making a lock that a URL can name.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Recipe {
    /// The URL's scheme.
    pub scheme: &'static str,
    /// The recipe's name within its scheme.
    pub name: &'static str,
    /// A URL to copy.
    pub example: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// What it promises.
    pub capability: Capability,
    /// The crate feature it needs; `None` when it is always there.
    pub feature: Option<&'static str>,
    /// Whether this build has it.
    pub compiled: bool,
}

impl Recipe {
    /// Whether it is kept only to be seen failing, and must not guard anything.
    pub fn is_unsafe(&self) -> bool {
        !self.capability.sound
    }
}

/// Every recipe there is, compiled in or not.
///
/// ```
/// assert!(lockkeeper::recipes().iter().any(|recipe| recipe.scheme == "sqlite"));
/// ```
pub fn recipes() -> &'static [Recipe] {
    RECIPES
}

static RECIPES: &[Recipe] = &[
    Recipe {
        scheme: "memory",
        name: "queue",
        example: "memory:",
        about: "the tasks and threads of one process",
        capability: MEMORY,
        feature: None,
        compiled: true,
    },
    Recipe {
        scheme: "etcd",
        name: "queue",
        example: "etcd://127.0.0.1",
        about: "keys in etcd, shared with Go's concurrency package and etcdctl lock",
        capability: ETCD,
        feature: Some("etcd"),
        compiled: cfg!(feature = "etcd"),
    },
    Recipe {
        scheme: "mariadb",
        name: "table",
        example: "mariadb://127.0.0.1/database",
        about: "two tables in MariaDB or MySQL, with a fair queue",
        capability: MARIADB_TABLE,
        feature: Some("mysql"),
        compiled: cfg!(feature = "mysql"),
    },
    Recipe {
        scheme: "mariadb",
        name: "get-lock",
        example: "mariadb://127.0.0.1/database?recipe=get-lock",
        about: "the named locks of MariaDB and MySQL, a session for each",
        capability: MARIADB_GET_LOCK,
        feature: Some("mysql"),
        compiled: cfg!(feature = "mysql"),
    },
    Recipe {
        scheme: "mariadb",
        name: "for-update",
        example: "mariadb://127.0.0.1/database?recipe=for-update",
        about: "a row locked by an open transaction, a session for each; also in a transaction of your own",
        capability: MARIADB_FOR_UPDATE,
        feature: Some("mysql"),
        compiled: cfg!(feature = "mysql"),
    },
    Recipe {
        scheme: "mariadb",
        name: "optimistic",
        example: "mariadb://127.0.0.1/database?recipe=optimistic",
        about: "a row with a version; no two clocks are compared",
        capability: SQL_OPTIMISTIC,
        feature: Some("mysql"),
        compiled: cfg!(feature = "mysql"),
    },
    Recipe {
        scheme: "memcached",
        name: "add",
        example: "memcached://127.0.0.1",
        about: "best effort: what memcached evicts or forgets, another gets; the token still fences. Shared with programs that add the bare key",
        capability: MEMCACHED_ADD,
        feature: Some("memcached"),
        compiled: cfg!(feature = "memcached"),
    },
    Recipe {
        scheme: "postgres",
        name: "table",
        example: "postgres://127.0.0.1/database",
        about: "two tables in PostgreSQL, with a fair queue",
        capability: POSTGRES_TABLE,
        feature: Some("postgres"),
        compiled: cfg!(feature = "postgres"),
    },
    Recipe {
        scheme: "postgres",
        name: "advisory",
        example: "postgres://127.0.0.1/database?recipe=advisory",
        about: "PostgreSQL's own advisory locks, a session for each",
        capability: POSTGRES_ADVISORY,
        feature: Some("postgres"),
        compiled: cfg!(feature = "postgres"),
    },
    Recipe {
        scheme: "postgres",
        name: "for-update",
        example: "postgres://127.0.0.1/database?recipe=for-update",
        about: "a row locked by an open transaction, a session for each; also in a transaction of your own",
        capability: POSTGRES_FOR_UPDATE,
        feature: Some("postgres"),
        compiled: cfg!(feature = "postgres"),
    },
    Recipe {
        scheme: "postgres",
        name: "optimistic",
        example: "postgres://127.0.0.1/database?recipe=optimistic",
        about: "a row with a version; no two clocks are compared",
        capability: SQL_OPTIMISTIC,
        feature: Some("postgres"),
        compiled: cfg!(feature = "postgres"),
    },
    Recipe {
        scheme: "redis",
        name: "queue",
        example: "redis://127.0.0.1",
        about: "a fair queue in Redis or Valkey",
        capability: REDIS_QUEUE,
        feature: Some("redis"),
        compiled: cfg!(feature = "redis"),
    },
    Recipe {
        scheme: "redis",
        name: "reentrant",
        example: "redis://127.0.0.1?recipe=reentrant",
        about: "shared with Redisson's locks and read-write locks",
        capability: REDIS_REENTRANT,
        feature: Some("redis"),
        compiled: cfg!(feature = "redis"),
    },
    Recipe {
        scheme: "redis",
        name: "set-nx-px",
        example: "redis://127.0.0.1?recipe=set-nx-px",
        about: "one key per lock, shared with redis-py, redsync, rslock and node-redlock",
        capability: REDIS_SET_NX_PX,
        feature: Some("redis"),
        compiled: cfg!(feature = "redis"),
    },
    Recipe {
        scheme: "redis",
        name: "setnx-expire",
        example: "redis://127.0.0.1?recipe=setnx-expire",
        about: "UNSAFE, to be seen failing: SETNX, then EXPIRE",
        capability: REDIS_HISTORIC,
        feature: Some("redis"),
        compiled: cfg!(feature = "redis"),
    },
    Recipe {
        scheme: "redis",
        name: "getset",
        example: "redis://127.0.0.1?recipe=getset",
        about: "UNSAFE, to be seen failing: expiry by the clients' clocks",
        capability: REDIS_HISTORIC,
        feature: Some("redis"),
        compiled: cfg!(feature = "redis"),
    },
    Recipe {
        scheme: "redlock",
        name: "quorum",
        example: "redlock://127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003",
        about: "a majority of independent Redis servers, shared with redsync, rslock and node-redlock",
        capability: REDLOCK,
        feature: Some("redis"),
        compiled: cfg!(feature = "redis"),
    },
    Recipe {
        scheme: "sqlite",
        name: "table",
        example: "sqlite:locks.db",
        about: "a file shared by the processes of one machine that may write it; sqlite: alone is one user's",
        capability: SQLITE,
        feature: Some("sqlite"),
        compiled: cfg!(feature = "sqlite"),
    },
    Recipe {
        scheme: "zookeeper",
        name: "fair",
        example: "zookeeper://127.0.0.1",
        about: "a fair queue in ZooKeeper, shared with Curator or kazoo",
        capability: ZOOKEEPER_FAIR,
        feature: Some("zookeeper"),
        compiled: cfg!(feature = "zookeeper"),
    },
    Recipe {
        scheme: "zookeeper",
        name: "barging",
        example: "zookeeper://127.0.0.1?recipe=barging",
        about: "the same nodes, but all who wait are woken at once",
        capability: ZOOKEEPER_BARGING,
        feature: Some("zookeeper"),
        compiled: cfg!(feature = "zookeeper"),
    },
    Recipe {
        scheme: "zookeeper",
        name: "ephemeral",
        example: "zookeeper://127.0.0.1?recipe=ephemeral",
        about: "one node in ZooKeeper, for the first to make it",
        capability: ZOOKEEPER_EPHEMERAL,
        feature: Some("zookeeper"),
        compiled: cfg!(feature = "zookeeper"),
    },
];

/// What `memory:` promises.
pub(crate) const MEMORY: Capability = Capability {
    shared: true,
    permits: true,
    fair: true,
    fencing: true,
    reentrant: true,
    min_hold: true,
    notified: true,
    inspects: true,
    sequences: true,
    portable: true,
    by_id: true,
    ..Capability::least(Reach::Process)
};

/// What `sqlite:` promises.
pub(crate) const SQLITE: Capability =
    Capability { reach: Reach::Machine, durable: true, auto_increment: true, ..MEMORY };

/// What `etcd://` promises. A claim lives on the lease of its keeper's session, and on one of its own once
/// it is handed out.
pub(crate) const ETCD: Capability = Capability {
    reach: Reach::Network,
    // A claim further back in the queue cannot hold beside the one in front.
    reentrant: false,
    durable: true,
    session: true,
    atomic_multi: true,
    ..MEMORY
};

/// What `postgres://` promises with its default recipe.
pub(crate) const POSTGRES_TABLE: Capability =
    Capability { reach: Reach::Network, durable: true, auto_increment: true, ..MEMORY };

/// What `mariadb://` and `mysql://` promise with their default recipe. These servers pass no
/// messages on, so waiters ask.
pub(crate) const MARIADB_TABLE: Capability = Capability { notified: false, ..POSTGRES_TABLE };

/// What `postgres://?recipe=advisory` promises. The server's memory has the locks, and forgets them
/// when it restarts.
pub(crate) const POSTGRES_ADVISORY: Capability = Capability {
    shared: true,
    fencing: true,
    notified: true,
    session: true,
    inspects: true,
    ..Capability::least(Reach::Network)
};

/// What `mariadb://?recipe=get-lock` promises. The server ends silent sessions by whole seconds.
pub(crate) const MARIADB_GET_LOCK: Capability =
    Capability { shared: false, shortest_ttl: Duration::from_secs(1), ..POSTGRES_ADVISORY };

/// What `postgres://?recipe=for-update` promises.
pub(crate) const POSTGRES_FOR_UPDATE: Capability =
    Capability { shared: false, ..POSTGRES_ADVISORY };

/// What `mariadb://?recipe=for-update` promises.
pub(crate) const MARIADB_FOR_UPDATE: Capability = MARIADB_GET_LOCK;

/// What `recipe=optimistic` promises on PostgreSQL, MariaDB and MySQL.
pub(crate) const SQL_OPTIMISTIC: Capability = Capability {
    fencing: true,
    durable: true,
    inspects: true,
    ..Capability::least(Reach::Network)
};

/// What `memcached://` promises. One key per lock has no room for a queue, and its clock counts whole
/// seconds.
pub(crate) const MEMCACHED_ADD: Capability = Capability {
    fencing: true,
    min_hold: true,
    inspects: true,
    sequences: true,
    portable: true,
    by_id: true,
    shortest_ttl: Duration::from_secs(2),
    ..Capability::least(Reach::Network)
};

/// What `redis://` promises with its default recipe.
pub(crate) const REDIS_QUEUE: Capability =
    Capability { reach: Reach::Network, durable: true, ..MEMORY };

/// What `redis://?recipe=reentrant` promises. Redisson's layout keeps no queue of those who wait.
pub(crate) const REDIS_REENTRANT: Capability =
    Capability { fair: false, permits: false, sequences: false, ..REDIS_QUEUE };

/// What `redis://?recipe=set-nx-px` promises. A counter for tokens would cost a second command,
/// and the other libraries on the same key would not count.
pub(crate) const REDIS_SET_NX_PX: Capability =
    Capability { min_hold: true, sound: true, portable: true, by_id: true, ..REDIS_HISTORIC };

/// What `redlock://` promises: as durable as a majority of its servers is together. Servers that are late
/// are asked again for a second, which must be a small part of what a claim lasts.
pub(crate) const REDLOCK: Capability = Capability {
    fencing: true,
    inspects: true,
    shortest_ttl: Duration::from_secs(2),
    // Two requests with one id, each with some of the votes, could undo each other's.
    by_id: false,
    ..REDIS_SET_NX_PX
};

/// What the unsafe recipes of `redis://` offer.
pub(crate) const REDIS_HISTORIC: Capability =
    Capability { durable: true, sound: false, ..Capability::least(Reach::Network) };

/// What `zookeeper://` promises with its default recipe. Its nodes live in the session of the
/// keeper that made them.
pub(crate) const ZOOKEEPER_FAIR: Capability = Capability {
    reach: Reach::Network,
    reentrant: false,
    min_hold: false,
    durable: true,
    session: true,
    portable: false,
    by_id: false,
    ..MEMORY
};

/// What `zookeeper://` promises with `recipe=barging`.
pub(crate) const ZOOKEEPER_BARGING: Capability =
    Capability { shared: false, permits: false, fair: false, ..ZOOKEEPER_FAIR };

/// What `zookeeper://` promises with `recipe=ephemeral`.
pub(crate) const ZOOKEEPER_EPHEMERAL: Capability = ZOOKEEPER_BARGING;

/// The error for a recipe that a store does not have: lists those that it has. Those that are there to be
/// seen failing are named as that.
#[allow(dead_code, reason = "memory has one recipe only")]
pub(crate) fn unknown_recipe(scheme: &str, recipe: &str) -> Error {
    let ours = || recipes().iter().filter(|known| known.scheme == scheme);
    let names = |is_unsafe: bool| -> Vec<&'static str> {
        ours().filter(|it| it.is_unsafe() == is_unsafe).map(|it| it.name).collect()
    };
    let (sound, failing) = (names(false), names(true));
    let meant = did_you_mean(recipe, sound.iter().copied());
    let mut message =
        format!("{scheme}:// has no recipe {recipe:?}: {meant}it has {}", sound.join(", "));
    if !failing.is_empty() {
        message += &format!(" (and, unsafe and only to be seen failing, {})", failing.join(", "));
    }
    Error::new(ErrorKind::Config, message)
}
