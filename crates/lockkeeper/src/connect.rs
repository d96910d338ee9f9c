//! From a URL to a backend: one plain `match`.

use crate::address::Address;
use crate::backend::{Backend, Capability, memory};
use crate::background::Background;
use crate::error::{Error, ErrorKind, Result};
use crate::keeper::Keeper;
use crate::patience::OUTAGE;
use std::sync::Arc;
use std::time::Duration;

/// Opens the store that `url` names.
///
/// | URL | store |
/// |---|---|
/// | `memory:` | this process's memory, new with every call |
/// | `sqlite:path/to/file.db` | a file shared by the processes of one machine |
/// | `sqlite:` | the same, in the default place: see [`sqlite`](crate::backend::sqlite) |
/// | `redis://host`, `rediss://host` | Redis or Valkey, plain or encrypted: see [`redis`](crate::backend::redis) |
/// | `redis+sentinel://h1,h2,h3/name` | the primary of that name, wherever the sentinels say it is |
/// | `redis+cluster://h1,h2,h3` | a Redis cluster |
/// | `etcd://h1,h2,h3/prefix` | etcd: see [`etcd`](crate::backend::etcd) |
/// | `zookeeper://h1,h2,h3/node` | ZooKeeper: see [`zookeeper`](crate::backend::zookeeper) |
///
/// Options stand behind a `?`, with `&` between them; each store's page lists its own, and one
/// that it does not have is refused. These encrypt, where the store is on a network:
///
/// | option | meaning |
/// |---|---|
/// | `tls=true` | speak TLS; `redis://` has the scheme `rediss://` for it |
/// | `ca=FILE` | trust the certificates in this file, instead of those that the system trusts |
/// | `cert=FILE&key=FILE` | show this certificate to a server that asks for one |
///
/// And every store has this one:
///
/// | option | meaning |
/// |---|---|
/// | `outage=30s` | how long a claim that waits puts up with a store that does not answer |
///
/// A user and a password stand before the host, `etcd://user:password@host`, with `%40` for an
/// `@` and so on. They appear in no error, log or `Debug`.
///
/// # Errors
/// [`ErrorKind::Config`] for a URL that makes no sense: an unknown scheme lists the known ones,
/// a scheme that is compiled out names its feature. Otherwise what opening the store said.
///
/// # Cancel safety
/// Cancel safe: nothing is taken before a lock is acquired.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// let keeper = lockkeeper::connect("memory:").await?;
/// let error = lockkeeper::connect("mongodb://localhost").await.unwrap_err();
/// assert!(error.to_string().contains("memory:"));
/// # Ok(()) }
/// ```
pub async fn connect(url: &str) -> Result<Keeper> {
    connect_in(url, Background::new()).await
}

/// As [`connect`], with its background work in `background`.
pub(crate) async fn connect_in(url: &str, background: Background) -> Result<Keeper> {
    let (address, outage) = parse(url)?;
    let backend = open_in(address, &background).await?;
    Keeper::over(backend, background, outage)
}

/// The address, and the option that every store has.
fn parse(url: &str) -> Result<(Address, Duration)> {
    let mut address = Address::parse(url)?;
    let outage = address.span("outage")?.unwrap_or(OUTAGE);
    address.options.remove("outage");
    Ok((address, outage))
}

/// The backend that `url` names, to wrap or to share between keepers; see [`connect`].
///
/// # Errors
/// As [`connect`].
///
/// # Cancel safety
/// As [`connect`].
pub async fn open(url: &str) -> Result<Arc<dyn Backend>> {
    let (address, _) = parse(url)?;
    open_in(address, &Background::new()).await
}

async fn open_in(address: Address, background: &Background) -> Result<Arc<dyn Backend>> {
    if address.scheme == "memory" {
        return open_address(address, background).await;
    }
    // Polled like everything else of the keeper, so that it needs no runtime of the caller's.
    let stays = background.clone();
    background.completing(async move { open_address(address, &stays).await })?.await
}

#[cfg_attr(
    not(any(feature = "etcd", feature = "redis", feature = "sqlite", feature = "zookeeper")),
    allow(unused_variables, reason = "memory has nothing to do in the background")
)]
async fn open_address(address: Address, background: &Background) -> Result<Arc<dyn Backend>> {
    match address.scheme.as_str() {
        "memory" => {
            address.only_options(&[])?;
            if address.authority.is_some() || !address.path.is_empty() {
                return Err(Error::new(
                    ErrorKind::Config,
                    "memory: stands alone; to share one store between keepers, use \
                     Keeper::new with clones of one Memory",
                ));
            }
            Ok(Arc::new(memory::Memory::new()))
        }
        #[cfg(feature = "etcd")]
        "etcd" => crate::backend::etcd::open(&address, background).await,
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+sentinel" | "redis+cluster" => {
            crate::backend::redis::open(&address, background).await
        }
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            // Opening waits for a file that another process is just making.
            let opening = move || crate::backend::sqlite::Sqlite::open(&address);
            let opened = background.handle()?.spawn_blocking(opening).await;
            let opened = opened.unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Unavailable, "the background thread ended"))
            });
            Ok(Arc::new(opened?))
        }
        #[cfg(feature = "zookeeper")]
        "zookeeper" => crate::backend::zookeeper::open(&address, background).await,
        other => Err(unknown_scheme(other)),
    }
}

fn unknown_scheme(scheme: &str) -> Error {
    let known = recipes();
    if let Some(recipe) = known.iter().find(|recipe| recipe.scheme == scheme) {
        let feature = recipe.feature.unwrap_or_default();
        return Error::new(
            ErrorKind::Config,
            format!("{scheme}: is not compiled in: build lockkeeper with the feature {feature:?}"),
        );
    }
    let compiled = known.iter().filter(|recipe| recipe.compiled);
    let mut list: Vec<_> = compiled.map(|recipe| format!("{}:", recipe.scheme)).collect();
    list.dedup();
    Error::new(
        ErrorKind::Config,
        format!("there is no store {scheme:?}: the known ones are {}", list.join(", ")),
    )
}

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
        self.about.starts_with("UNSAFE")
    }
}

/// Every recipe there is, compiled in or not.
///
/// ```
/// assert!(lockkeeper::recipes().iter().any(|recipe| recipe.scheme == "sqlite"));
/// ```
pub fn recipes() -> Vec<Recipe> {
    vec![
        Recipe {
            scheme: "memory",
            name: "queue",
            example: "memory:",
            about: "the tasks and threads of one process",
            capability: memory::CAPABILITY,
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
            scheme: "sqlite",
            name: "table",
            example: "sqlite:locks.db",
            about: "a file shared by every process of one machine",
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
            about: "one node in ZooKeeper, for whoever makes it first",
            capability: ZOOKEEPER_EPHEMERAL,
            feature: Some("zookeeper"),
            compiled: cfg!(feature = "zookeeper"),
        },
    ]
}

// Here and not in the backend, so that it can be told of even when compiled out.
/// What `sqlite:` promises.
pub(crate) const SQLITE: Capability =
    Capability { reach: crate::backend::Reach::Machine, durable: true, ..memory::CAPABILITY };

/// What `etcd://` promises.
pub(crate) const ETCD: Capability = Capability {
    reach: crate::backend::Reach::Network,
    // A claim further back in the queue cannot hold beside the one in front.
    reentrant: false,
    durable: true,
    session: true,
    ..memory::CAPABILITY
};

/// What `redis://` promises with its default recipe.
pub(crate) const REDIS_QUEUE: Capability =
    Capability { reach: crate::backend::Reach::Network, durable: true, ..memory::CAPABILITY };

/// What `zookeeper://` promises with its default recipe.
pub(crate) const ZOOKEEPER_FAIR: Capability = Capability {
    reach: crate::backend::Reach::Network,
    reentrant: false,
    linger: false,
    durable: true,
    session: true,
    ..memory::CAPABILITY
};

/// What `zookeeper://` promises with `recipe=barging`.
pub(crate) const ZOOKEEPER_BARGING: Capability =
    Capability { shared: false, permits: false, fair: false, ..ZOOKEEPER_FAIR };

/// What `zookeeper://` promises with `recipe=ephemeral`.
pub(crate) const ZOOKEEPER_EPHEMERAL: Capability = ZOOKEEPER_BARGING;

/// What `redis://?recipe=set-nx-px` promises. A counter for tokens would cost a second command,
/// and the other libraries on the same key would not count.
pub(crate) const REDIS_SET_NX_PX: Capability = Capability { linger: true, ..REDIS_HISTORIC };

/// What the unsafe recipes of `redis://` offer. They keep less than they promise: see there.
pub(crate) const REDIS_HISTORIC: Capability =
    Capability { durable: true, ..Capability::least(crate::backend::Reach::Network) };

/// What `redis://?recipe=reentrant` promises. Redisson's layout keeps no queue of those who wait.
pub(crate) const REDIS_REENTRANT: Capability =
    Capability { fair: false, permits: false, ..REDIS_QUEUE };

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_scheme_lists_the_known_ones() {
        let error = connect("mongodb://me:hunter2@localhost").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("\"mongodb\""), "{error}");
        assert!(error.to_string().contains("memory:"), "{error}");
        assert!(!format!("{error:?}").contains("hunter2"));
    }

    #[cfg(not(feature = "sqlite"))]
    #[tokio::test]
    async fn a_scheme_compiled_out_names_its_feature() {
        let error = connect("sqlite:").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("feature \"sqlite\""), "{error}");
    }

    #[tokio::test]
    async fn what_memory_does_not_take_is_refused() {
        for url in ["memory:x", "memory://h", "memory:?a=b"] {
            assert_eq!(connect(url).await.unwrap_err().kind(), ErrorKind::Config, "{url}");
        }
    }
}
