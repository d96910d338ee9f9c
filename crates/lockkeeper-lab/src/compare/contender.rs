//! Who is compared: every sound recipe of ours, and the libraries that people would take instead.

use crate::interop::Cache;
use crate::server::Kind;
use crate::workload::url;
use anyhow::Result;
use lockkeeper::Recipe;
use lockkeeper::backend::Reach;
use std::process::Command;

/// How long a claim lasts, and a session, while crashes are measured. The programs of other libraries
/// have sessions of this length too.
pub(super) const TTL: &str = "4s";
/// Enough for the most names that are held at once.
const SESSIONS: &str = "120";

/// One row of the comparison.
#[derive(Debug, Clone, Copy)]
pub(super) enum Contender {
    Ours(&'static Recipe),
    /// A recipe of ours on a Redis as it comes, which answers before anything is on its disk.
    InMemory(&'static Recipe),
    Other(&'static Library),
}

/// Another library, on one store.
#[derive(Debug)]
pub(super) struct Library {
    kind: Kind,
    name: &'static str,
    /// A file that says its version, and what stands in front of that.
    version: (&'static str, &'static str),
    /// `None`: it is linked, and this program serves for it.
    program: Option<fn(&Cache) -> Result<Command>>,
}

const REDIS_PY: &str = include_str!("../../interop/redis/redis_py/requirements.txt");
const NODE_REDLOCK: &str = include_str!("../../interop/redis/node_redlock/package.json");
const REDISSON: &str = include_str!("../../interop/redis/redisson/pom.xml");
const REDSYNC: &str = include_str!("../../interop/redis/redsync/go.mod");
const GO: &str = include_str!("../../interop/etcd/go/go.mod");
const CURATOR: &str = include_str!("../../interop/zookeeper/curator/pom.xml");
const KAZOO: &str = include_str!("../../interop/zookeeper/kazoo/requirements.txt");
const CARGO: &str = include_str!("../../Cargo.toml");

const fn redsync(kind: Kind) -> Library {
    let version = (REDSYNC, "redsync/v4 v");
    Library { kind, name: "redsync", version, program: Some(Cache::redsync) }
}

const fn node_redlock(kind: Kind) -> Library {
    let version = (NODE_REDLOCK, "\"redlock\": \"");
    Library { kind, name: "node-redlock", version, program: Some(Cache::node_redlock) }
}

const fn rslock(kind: Kind) -> Library {
    Library { kind, name: "rslock", version: (CARGO, "rslock = { version = \""), program: None }
}

static LIBRARIES: &[Library] = &[
    Library {
        kind: Kind::Redis,
        name: "Redisson",
        version: (REDISSON, "<artifactId>redisson</artifactId>"),
        program: Some(Cache::redisson),
    },
    Library {
        kind: Kind::Redis,
        name: "redis-py",
        version: (REDIS_PY, "redis=="),
        program: Some(Cache::redis_py),
    },
    node_redlock(Kind::Redis),
    redsync(Kind::Redis),
    rslock(Kind::Redis),
    node_redlock(Kind::Redlock),
    redsync(Kind::Redlock),
    rslock(Kind::Redlock),
    Library {
        kind: Kind::ZooKeeper,
        name: "Curator",
        version: (CURATOR, "<artifactId>curator-recipes</artifactId>"),
        program: Some(Cache::curator),
    },
    Library {
        kind: Kind::ZooKeeper,
        name: "kazoo",
        version: (KAZOO, "kazoo=="),
        program: Some(Cache::kazoo),
    },
    Library {
        kind: Kind::Etcd,
        name: "Go's mutex",
        version: (GO, "etcd/client/v3 v"),
        program: Some(Cache::go_concurrency),
    },
];

/// Everyone, or everyone on one store; stores in the order of the library's list of recipes.
pub(super) fn all(store: Option<&str>) -> Vec<Contender> {
    let mut rows = Vec::new();
    let recipes = lockkeeper::recipes();
    let mut stores: Vec<&str> = Vec::new();
    for recipe in recipes {
        if !stores.contains(&recipe.scheme) {
            stores.push(recipe.scheme);
        }
    }
    for scheme in stores.into_iter().filter(|scheme| store.is_none_or(|it| it == *scheme)) {
        let ours = recipes.iter().filter(|it| it.scheme == scheme && !it.is_unsafe());
        rows.extend(ours.clone().map(Contender::Ours));
        // What the disk costs: the store's usual recipe without it.
        let usual = ours.filter(|it| scheme == "redis" && !it.example.contains("recipe="));
        rows.extend(usual.map(Contender::InMemory));
        let others = LIBRARIES.iter().filter(|library| library.kind.word() == scheme);
        rows.extend(others.map(Contender::Other));
    }
    rows
}

impl Contender {
    pub(super) fn store(&self) -> &'static str {
        match self {
            Self::Ours(recipe) | Self::InMemory(recipe) => recipe.scheme,
            Self::Other(library) => library.kind.word(),
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Ours(recipe) => recipe.name.to_owned(),
            Self::InMemory(recipe) => format!("{} in memory", recipe.name),
            Self::Other(library) => library.name.to_owned(),
        }
    }

    /// The recipe, if it is one of ours.
    pub(super) fn recipe(&self) -> Option<&'static Recipe> {
        match self {
            Self::Ours(recipe) | Self::InMemory(recipe) => Some(recipe),
            Self::Other(_) => None,
        }
    }

    pub(super) fn is_ours(&self) -> bool {
        self.recipe().is_some()
    }

    /// The server it needs, if it needs one.
    pub(super) fn kind(&self) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.word() == self.store())
    }

    pub(super) fn reach(&self) -> Reach {
        self.recipe().map_or(Reach::Network, |recipe| recipe.capability.reach)
    }

    /// The library's version, as the file says from which it is installed.
    pub(super) fn version(&self) -> String {
        let Self::Other(Library { version: (file, before), .. }) = self else {
            return String::new();
        };
        let rest = file.split_once(before).map_or("", |(_, rest)| rest);
        let start = rest.find(|it: char| it.is_ascii_digit()).unwrap_or(rest.len());
        let number =
            rest[start..].split(|it: char| !it.is_ascii_alphanumeric() && !".-".contains(it));
        number.map(str::to_owned).next().unwrap_or_default()
    }

    /// The store's URL, as this row wants it.
    pub(super) fn url(&self, server: &str) -> Result<String> {
        let Some(recipe) = self.recipe() else {
            // The program for redsync takes one server as a list of one.
            let listed = self.name() == "redsync";
            return Ok(if listed {
                server.replace("redis://", "redlock://")
            } else {
                server.to_owned()
            });
        };
        let mut url = server.to_owned();
        if recipe.example.contains("recipe=") {
            url = url::with_recipe(&url, recipe.name)?;
        }
        if recipe.capability.session {
            url = url::with_option(&url, "session", TTL)?;
            // Locks that live in sessions of a database have one each.
            if matches!(self.kind(), Some(Kind::Postgres | Kind::MariaDb)) {
                url = url::with_option(&url, "sessions", SESSIONS)?;
            }
        }
        Ok(url)
    }

    /// The program that takes its locks on command.
    pub(super) fn program(&self, cache: &Cache) -> Result<Command> {
        let serving = |who: &str| -> Result<Command> {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["contend", who]);
            Ok(command)
        };
        match self {
            Self::Ours(_) | Self::InMemory(_) => serving("ours"),
            Self::Other(Library { program: None, .. }) => serving("rslock"),
            Self::Other(Library { program: Some(program), .. }) => program(cache),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sound_recipe_is_compared_and_no_other() {
        let rows = all(None);
        for recipe in lockkeeper::recipes() {
            let found = rows.iter().any(|it| {
                it.is_ours() && (it.store(), it.name().as_str()) == (recipe.scheme, recipe.name)
            });
            assert_eq!(found, !recipe.is_unsafe(), "{} {}", recipe.scheme, recipe.name);
        }
    }

    #[test]
    fn versions_are_those_that_are_installed() {
        for row in all(None).into_iter().filter(|row| !row.is_ours()) {
            let version = row.version();
            assert!(
                version.starts_with(|it: char| it.is_ascii_digit()),
                "{} {version}",
                row.name()
            );
            assert!(version.contains('.'), "{} {version}", row.name());
        }
    }
}
