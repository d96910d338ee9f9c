//! The files that the packages install, and where they are found.

use std::path::{Path, PathBuf};

/// A file that a package installs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tool {
    /// Its name.
    pub file: &'static str,
    /// The Debian package that contains it.
    pub package: &'static str,
    /// Folders to search before the `PATH`. One part may be `*`; of several matches, the highest
    /// number counts.
    pub places: &'static [&'static str],
}

const fn tool(file: &'static str, package: &'static str, places: &'static [&'static str]) -> Tool {
    Tool { file, package, places }
}

const SYSTEM: &[&str] = &["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];
const POSTGRES_HOMES: &[&str] = &["/usr/lib/postgresql/*/bin", "/usr/bin"];

pub(crate) const REDIS: Tool = tool("redis-server", "redis-server", SYSTEM);
pub(crate) const JAVA: Tool = tool("java", "default-jre-headless", SYSTEM);
/// Only the jars: the `zookeeper` package would add a desktop's worth of Java.
pub(crate) const ZOOKEEPER: Tool =
    tool("zookeeper.jar", "libzookeeper-java", &["/usr/share/java", "/usr/share/zookeeper"]);
pub(crate) const INITDB: Tool = tool("initdb", "postgresql", POSTGRES_HOMES);
pub(crate) const POSTGRES: Tool = tool("postgres", "postgresql", POSTGRES_HOMES);
/// Copies a running server to a standby; in the package of the client, on which `postgresql` depends.
pub(crate) const PG_BASEBACKUP: Tool = tool("pg_basebackup", "postgresql", POSTGRES_HOMES);
pub(crate) const PGBOUNCER: Tool = tool("pgbouncer", "pgbouncer", SYSTEM);
pub(crate) const MARIADB: Tool = tool("mariadbd", "mariadb-server-core", SYSTEM);
pub(crate) const MARIADB_INSTALL: Tool = tool("mariadb-install-db", "mariadb-server-core", SYSTEM);
/// `mariadb-install-db` calls it.
pub(crate) const MARIADB_DEFAULTS: Tool = tool("my_print_defaults", "mariadb-client-core", SYSTEM);
/// What makes MariaDB a member of a cluster with several primaries.
pub(crate) const GALERA: Tool = tool("libgalera_smm.so", "galera-4", &["/usr/lib/galera"]);
pub(crate) const MEMCACHED: Tool = tool("memcached", "memcached", SYSTEM);
pub(crate) const ETCD: Tool = tool("etcd", "etcd-server", SYSTEM);
pub(crate) const ETCDCTL: Tool = tool("etcdctl", "etcd-client", SYSTEM);
pub(crate) const OPENSSL: Tool = tool("openssl", "openssl", SYSTEM);
pub(crate) const SETPRIV: Tool = tool("setpriv", "util-linux", SYSTEM);
/// Checks alert rules; the server that comes with it is not started.
pub const PROMTOOL: Tool = tool("promtool", "prometheus", SYSTEM);
pub(crate) const FAKETIME: Tool = tool(
    "libfaketimeMT.so.1",
    "libfaketime",
    &["/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/lib64/faketime"],
);

// Used to install and run other libraries; found on the `PATH`, like a user's own tools.
pub(crate) const PYTHON: Tool = tool("python3", "python3-venv", &[]);
pub(crate) const NODE: Tool = tool("node", "nodejs", &[]);
pub(crate) const NPM: Tool = tool("npm", "npm", &[]);
pub(crate) const JAVAC: Tool = tool("javac", "default-jdk-headless", &[]);
pub(crate) const MAVEN: Tool = tool("mvn", "maven", &[]);

/// Needed by some tests, for every kind of server.
pub(crate) const EXTRAS: &[Tool] =
    &[FAKETIME, OPENSSL, SETPRIV, ETCDCTL, PG_BASEBACKUP, PGBOUNCER, GALERA, PROMTOOL];
/// Needed to test other libraries.
pub(crate) const LANGUAGES: &[Tool] = &[PYTHON, NODE, NPM, JAVAC, MAVEN];

impl Tool {
    /// Where it is. The places come before the `PATH`: a link on the `PATH` may lead to a program
    /// that looks for its siblings beside itself.
    #[must_use]
    pub fn find(&self) -> Option<PathBuf> {
        let places = self.places.iter().flat_map(|place| expand(place));
        let path = std::env::var_os("PATH").unwrap_or_default();
        places
            .chain(std::env::split_paths(&path))
            .map(|folder| folder.join(self.file))
            .find(|file| file.is_file())
    }

    /// Where it is.
    ///
    /// # Errors
    /// Says how to install it.
    pub fn path(&self) -> anyhow::Result<PathBuf> {
        self.find().ok_or_else(|| {
            anyhow::anyhow!(
                "{} is not installed (package {}): run `cargo xtask setup`",
                self.file,
                self.package
            )
        })
    }
}

/// Why a test that needs this tool must be reported as ignored, if so; as
/// [`missing`](super::missing) is for servers.
#[must_use]
pub fn missing_tool(tool: &Tool) -> Option<String> {
    if std::env::var(super::REQUIRE).is_ok_and(|value| value == "1") || tool.find().is_some() {
        return None;
    }
    Some(format!("{} is not installed (cargo xtask setup)", tool.file))
}

fn expand(place: &str) -> Vec<PathBuf> {
    let Some((before, after)) = place.split_once("/*/") else {
        return vec![PathBuf::from(place)];
    };
    let mut found: Vec<PathBuf> = std::fs::read_dir(before)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .map(|entry| entry.path().join(after))
        .filter(|folder| folder.is_dir())
        .collect();
    found.sort_by_key(|folder| std::cmp::Reverse((number_in(folder), folder.clone())));
    found
}

fn number_in(folder: &Path) -> u32 {
    let parts = folder.iter().filter_map(|part| part.to_str()?.parse().ok());
    parts.max().unwrap_or(0)
}
