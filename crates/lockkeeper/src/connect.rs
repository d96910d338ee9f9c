//! From a URL to a backend: one plain `match`.

use crate::address::Address;
use crate::backend::{Backend, OpenStore, memory};
use crate::background::Background;
use crate::error::{Error, ErrorKind, Result};
use crate::keeper::Keeper;
use crate::patience::OUTAGE;
use crate::recipes::recipes;
use crate::similar::did_you_mean;
use std::sync::Arc;
use std::time::Duration;

/// Opens the store that `url` names.
///
/// | URL | store |
/// |---|---|
/// | `memory:` | this process's memory, new with every call |
/// | `sqlite:path/to/file.db` | a file shared by the processes of one machine |
/// | `sqlite:` | the same, in this user's own place: see [`sqlite`](crate::backend::sqlite) |
/// | `redis://host`, `rediss://host` | Redis or Valkey, plain or encrypted: see [`redis`](crate::backend::redis) |
/// | `redis+sentinel://h1,h2,h3/name` | the primary of that name, wherever the sentinels say it is |
/// | `redis+cluster://h1,h2,h3` | a Redis cluster |
/// | `postgres://host/database` | PostgreSQL: see [`sql`](crate::backend::sql) |
/// | `mariadb://host/database`, `mysql://…` | MariaDB or MySQL: see [`sql`](crate::backend::sql) |
/// | `redlock://h1,h2,h3` | a majority of independent Redis servers: see [`quorum`](crate::backend::quorum) |
/// | `etcd://h1,h2,h3/prefix` | etcd: see [`etcd`](crate::backend::etcd) |
/// | `memcached://h1,h2` | memcached: see [`memcached`](crate::backend::memcached) |
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

/// Opens a store by its options instead of by a URL: for what a URL cannot say, such as
/// certificates that are in memory, or a client of one's own.
///
/// # Errors
/// As [`connect`].
///
/// # Cancel safety
/// As [`connect`].
///
/// ```
/// # #[cfg(feature = "sqlite")] {
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// use lockkeeper::backend::sqlite::SqliteOptions;
///
/// let keeper = lockkeeper::connect_with(SqliteOptions::new(folder.path().join("locks.db"))).await?;
/// keeper.lock("orders/42").acquire().await?.release().await?;
/// # Ok(()) }
/// # main().unwrap() }
/// ```
pub async fn connect_with(options: impl OpenStore) -> Result<Keeper> {
    connect_with_in(options, Background::new()).await
}

/// As [`connect_with`], with its background work in `background`.
pub(crate) async fn connect_with_in(
    options: impl OpenStore,
    background: Background,
) -> Result<Keeper> {
    let (outage, options) = (options.outage(), Box::new(options));
    let stays = background.clone();
    let opening = background.completing(async move { options.open(&stays).await })?;
    Keeper::over(opening.await?, background, outage)
}

/// As [`connect`], with its background work in `background`.
pub(crate) async fn connect_in(url: &str, background: Background) -> Result<Keeper> {
    let (address, outage) = parse(url)?;
    let backend = open_in(address, &background).await?;
    Keeper::over(backend, background, outage)
}

/// As [`connect`], to an address that was read before.
pub(crate) async fn connect_to(address: Address, outage: Duration) -> Result<Keeper> {
    let background = Background::new();
    let backend = open_in(address, &background).await?;
    Keeper::over(backend, background, outage)
}

/// The address, and the option that every store has.
pub(crate) fn parse(url: &str) -> Result<(Address, Duration)> {
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
    not(any(
        feature = "etcd",
        feature = "memcached",
        feature = "mysql",
        feature = "postgres",
        feature = "redis",
        feature = "sqlite",
        feature = "zookeeper"
    )),
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
        "etcd" => {
            Box::new(crate::backend::etcd::EtcdOptions::read(&address)?).open(background).await
        }
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => {
            Box::new(crate::backend::sql::MysqlOptions::read(&address)?).open(background).await
        }
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            Box::new(crate::backend::sql::PostgresOptions::read(&address)?).open(background).await
        }
        #[cfg(feature = "memcached")]
        "memcached" => {
            let options = crate::backend::memcached::MemcachedOptions::read(&address)?;
            Box::new(options).open(background).await
        }
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+sentinel" | "redis+cluster" => {
            Box::new(crate::backend::redis::RedisOptions::read(&address)?).open(background).await
        }
        #[cfg(feature = "redis")]
        "redlock" => {
            Box::new(crate::backend::redis::RedlockOptions::read(&address)?).open(background).await
        }
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            Box::new(crate::backend::sqlite::SqliteOptions::read(&address)?).open(background).await
        }
        #[cfg(feature = "zookeeper")]
        "zookeeper" => {
            let options = crate::backend::zookeeper::ZooKeeperOptions::read(&address)?;
            Box::new(options).open(background).await
        }
        other => Err(unknown_scheme(other, &address)),
    }
}

fn unknown_scheme(scheme: &str, address: &Address) -> Error {
    let known = recipes();
    if let Some(meant) = host_and_port(scheme, address) {
        return Error::new(ErrorKind::Config, meant);
    }
    // The other spellings of a scheme.
    let spelled = match scheme {
        "mysql" => "mariadb",
        "postgresql" => "postgres",
        "rediss" | "redis+sentinel" | "redis+cluster" => "redis",
        scheme => scheme,
    };
    let compiled = known.iter().filter(|recipe| recipe.compiled);
    let mut list: Vec<_> = compiled.map(|recipe| format!("{}:", recipe.scheme)).collect();
    list.dedup();
    let list = list.join(", ");
    let schemes = known.iter().filter(|recipe| recipe.compiled).map(|recipe| recipe.scheme);
    let meant = did_you_mean(scheme, schemes);
    let message = match known.iter().find(|recipe| recipe.scheme == spelled) {
        Some(recipe) => format!(
            "{scheme}: is not compiled in: build lockkeeper with the feature {:?}, or use one of {list}",
            recipe.feature.unwrap_or_default(),
        ),
        None => format!("there is no store {scheme:?}: {meant}the known ones are {list}"),
    };
    Error::new(ErrorKind::Config, message)
}

/// What to write instead of a host and a port without a scheme in front. A password can be in neither: what
/// stands there is shown only if it is a number.
fn host_and_port(host: &str, address: &Address) -> Option<String> {
    let port: u16 = address.path.split('/').next()?.parse().ok()?;
    if address.authority.is_some() {
        return None;
    }
    let scheme = match port {
        2379 => "etcd",
        2181 => "zookeeper",
        3306 => "mariadb",
        5432 => "postgres",
        11211 => "memcached",
        _ => "redis",
    };
    Some(format!(
        "{host}:{port} says where, but not which kind of store: did you mean {scheme}://{host}:{port}?"
    ))
}

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

    #[tokio::test]
    async fn what_may_be_meant_is_said() {
        for (url, meant) in [
            ("127.0.0.1:6379", "redis://127.0.0.1:6379"),
            ("localhost:2379", "etcd://localhost:2379"),
            ("memmory:", "\"memory\""),
        ] {
            let error = connect(url).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(&format!("did you mean {meant}?")), "{error}");
        }
        let error = connect("me:4711@localhost").await.unwrap_err();
        assert!(!error.to_string().contains("4711"), "it may be a password: {error}");
    }

    #[cfg(not(feature = "sqlite"))]
    #[tokio::test]
    async fn a_scheme_compiled_out_names_its_feature() {
        let error = connect("sqlite:").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("feature \"sqlite\""), "{error}");
    }

    #[cfg(not(feature = "redis"))]
    #[tokio::test]
    async fn every_spelling_of_a_scheme_compiled_out_names_its_feature() {
        for scheme in ["redis", "rediss", "redis+sentinel", "redis+cluster", "redlock"] {
            let error = connect(&format!("{scheme}://h1/x")).await.unwrap_err().to_string();
            assert!(error.starts_with(&format!("{scheme}: is not compiled in")), "{error}");
            assert!(error.contains("feature \"redis\", or use one of memory:"), "{error}");
        }
    }

    #[tokio::test]
    async fn what_memory_does_not_take_is_refused() {
        for url in ["memory:x", "memory://h", "memory:?a=b"] {
            assert_eq!(connect(url).await.unwrap_err().kind(), ErrorKind::Config, "{url}");
        }
    }
}
