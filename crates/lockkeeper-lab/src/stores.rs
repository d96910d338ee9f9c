//! The one list of stores in the lab: what is tested on each, and what the lab must know about it.
//!
//! The contract run, the fault runs, the outage tests, the command line tests and the trials
//! against other libraries all take their stores from here. A server that lockkeeper has no store
//! for yet is a [`Kind`] without a row.

use crate::server::Kind;

/// A store with a server.
#[derive(Debug)]
pub struct Store {
    /// What the lab starts for it.
    pub kind: Kind,
    /// The variants that the contract is run on: every recipe, and every layout shared with another
    /// library. Sessions are short, so that killed clients do not delay the suite.
    pub contract: &'static [Variant],
    /// The runs under faults of clients, the network and the server.
    pub runs: &'static [Run],
    /// Runs under faults that only this store, or only a group of several members, can have.
    pub own_runs: &'static [OwnRun],
    /// What the key, or the node, of the lock `job` is called.
    pub key: &'static str,
    /// The session timeout in a run, for stores that bind claims to sessions: the claims of a
    /// killed client must end before the run does.
    pub session: Option<&'static str>,
    /// Whether the lab's proxy can tell its replies apart.
    pub speaks_resp: bool,
    /// Whether other libraries share locks with it in `lab interop`.
    pub interop: bool,
}

/// One way to open a store.
#[derive(Debug)]
pub struct Variant {
    /// Its name in the names of tests.
    pub label: &'static str,
    /// What is added to the server's URL.
    pub tail: &'static str,
}

/// A run on one server.
#[derive(Debug)]
pub struct Run {
    /// Empty if the store has only one recipe.
    pub recipe: &'static str,
    /// What the clients do.
    pub work: &'static str,
    /// Which of [`FAULTS`].
    pub faults: &'static [(&'static str, u32)],
}

/// A run under faults of one store only.
#[derive(Debug)]
pub struct OwnRun {
    /// Empty if the store has only one recipe.
    pub recipe: &'static str,
    /// How many servers make up the store.
    pub members: &'static str,
    /// What is broken.
    pub fault: &'static str,
    /// For how long.
    pub seconds: u32,
}

/// Faults injected into every store, two kinds at a time, and for how many seconds.
pub const FAULTS: &[(&str, u32)] =
    &[("kill,pause", 9), ("partition,lost-reply", 9), ("server-kill,reset", 9)];

/// Of memcached: a server that is killed forgets every lock, so what can be asked of a run with it is
/// in a test of its own. Longer, since its shortest ttl is.
const MEMCACHED_FAULTS: &[(&str, u32)] =
    &[("kill,pause", 14), ("partition,lost-reply", 14), ("server-pause,late", 20)];

const fn variant(label: &'static str, tail: &'static str) -> Variant {
    Variant { label, tail }
}

/// All pairs of faults.
const fn whole(recipe: &'static str) -> Run {
    Run { recipe, work: "lock", faults: FAULTS }
}

/// One of the pairs: enough for a recipe that mostly shares its code with another.
const fn part(recipe: &'static str, work: &'static str, faults: usize) -> Run {
    let (_, from) = FAULTS.split_at(faults);
    let (one, _) = from.split_at(1);
    Run { recipe, work, faults: one }
}

const fn own(
    recipe: &'static str,
    members: &'static str,
    fault: &'static str,
    seconds: u32,
) -> OwnRun {
    OwnRun { recipe, members, fault, seconds }
}

/// Every store with a server.
pub static STORES: &[Store] = &[
    Store {
        kind: Kind::Redis,
        contract: &[
            variant("redis-queue", "?recipe=queue"),
            variant("redis-reentrant", "?recipe=reentrant"),
            variant("redis-set-nx-px", "?recipe=set-nx-px"),
            variant("redis-setnx-expire", "?recipe=setnx-expire"),
            variant("redis-getset", "?recipe=getset"),
        ],
        runs: &[
            whole("queue"),
            part("queue", "rw", 0),
            part("queue", "permits", 0),
            part("queue", "cancel", 0),
            part("queue", "tickets", 0),
            part("queue", "tickets", 1),
            whole("reentrant"),
            part("reentrant", "rw", 0),
            whole("set-nx-px"),
        ],
        own_runs: &[
            own("queue", "1", "runtime-end", 6),
            own("queue", "1", "forged-message,server-kill", 12),
            own("queue", "3", "failover", 16),
            own("queue", "3", "stale-sentinel", 12),
            own("queue", "6", "server-pause", 10),
        ],
        key: "lockkeeper:{job}",
        session: None,
        speaks_resp: true,
        interop: true,
    },
    Store {
        kind: Kind::Redlock,
        contract: &[
            variant("redlock", ""),
            variant("redlock-plain", "?token=false&prefix=plain:&min_uptime=0s"),
        ],
        runs: &[whole(""), part("", "cancel", 0), part("", "tickets", 0)],
        own_runs: &[own("", "1", "runtime-end", 6)],
        session: None,
        key: "job",
        speaks_resp: true,
        interop: true,
    },
    Store {
        kind: Kind::ZooKeeper,
        contract: &[
            variant("zookeeper-fair", "/fair?session=6s"),
            variant("zookeeper-kazoo", "/kazoo?session=6s&layout=kazoo"),
            variant("zookeeper-barging", "/barging?session=6s&recipe=barging"),
            variant("zookeeper-ephemeral", "/ephemeral?session=6s&recipe=ephemeral"),
        ],
        runs: &[
            whole("fair"),
            part("fair", "rw", 0),
            part("barging", "lock", 2),
            part("ephemeral", "lock", 1),
        ],
        own_runs: &[
            own("fair", "1", "runtime-end", 6),
            own("fair", "3", "disk-hang,server-pause", 12),
        ],
        key: "/lockkeeper/job",
        session: Some("2s"),
        speaks_resp: false,
        interop: true,
    },
    Store {
        kind: Kind::Memcached,
        contract: &[variant("memcached-add", ""), variant("memcached-bare", "?prefix=")],
        runs: &[
            Run { recipe: "", work: "lock", faults: MEMCACHED_FAULTS },
            Run { recipe: "", work: "cancel", faults: &[("kill,reset", 12)] },
        ],
        own_runs: &[own("", "1", "runtime-end", 6)],
        key: "lockkeeper:job",
        session: None,
        speaks_resp: false,
        interop: true,
    },
    Store {
        kind: Kind::Etcd,
        contract: &[variant("etcd", "?session=4s")],
        runs: &[whole(""), part("", "rw", 0)],
        own_runs: &[own("", "1", "runtime-end", 6), own("", "3", "disk-hang,server-pause", 12)],
        key: "lockkeeper/job",
        session: Some("2s"),
        speaks_resp: false,
        interop: true,
    },
    Store {
        kind: Kind::Postgres,
        contract: &[
            variant("postgres-table", "?recipe=table"),
            variant("postgres-advisory", "?recipe=advisory&session=3s&sessions=120"),
            variant("postgres-for-update", "?recipe=for-update&session=3s&sessions=120"),
            variant("postgres-optimistic", "?recipe=optimistic"),
        ],
        runs: &[
            whole("table"),
            part("table", "rw", 0),
            part("table", "permits", 0),
            part("table", "cancel", 0),
            part("table", "tickets", 0),
            whole("advisory"),
            part("advisory", "rw", 0),
            whole("for-update"),
            whole("optimistic"),
        ],
        own_runs: &[own("table", "1", "runtime-end", 6)],
        key: "SELECT * FROM lockkeeper WHERE name = 'job'",
        session: Some("2s"),
        speaks_resp: false,
        interop: false,
    },
    Store {
        kind: Kind::MariaDb,
        contract: &[
            variant("mariadb-table", "?recipe=table"),
            variant("mariadb-get-lock", "?recipe=get-lock&session=3s&sessions=120"),
            variant("mariadb-for-update", "?recipe=for-update&session=3s&sessions=120"),
            variant("mariadb-optimistic", "?recipe=optimistic"),
        ],
        runs: &[
            whole("table"),
            part("table", "rw", 0),
            part("table", "permits", 0),
            part("table", "cancel", 0),
            whole("get-lock"),
            whole("for-update"),
            part("optimistic", "lock", 0),
        ],
        own_runs: &[own("table", "1", "runtime-end", 6)],
        key: "SELECT * FROM lockkeeper WHERE name = 'job'",
        session: Some("2s"),
        speaks_resp: false,
        interop: false,
    },
];

/// The row of a kind of server, if lockkeeper has a store for it.
#[must_use]
pub fn of(kind: Kind) -> Option<&'static Store> {
    STORES.iter().find(|store| store.kind == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recipe that is not tested would be a promise without proof.
    #[test]
    fn every_recipe_with_a_server_is_tried_by_the_contract() {
        for recipe in lockkeeper::recipes() {
            let Some(store) = STORES.iter().find(|store| store.kind.word() == recipe.scheme) else {
                continue;
            };
            let named = |variant: &Variant| variant.tail.contains(&format!("={}", recipe.name));
            let unnamed = |variant: &Variant| !variant.tail.contains("recipe=");
            let default = !recipe.example.contains("recipe=");
            let tried = store.contract.iter().any(|it| named(it) || (default && unnamed(it)));
            assert!(tried, "{} {}", recipe.scheme, recipe.name);
        }
        let stores = lockkeeper::recipes().iter().map(|recipe| recipe.scheme);
        for scheme in stores.filter(|scheme| !["memory", "sqlite"].contains(scheme)) {
            assert!(STORES.iter().any(|store| store.kind.word() == scheme), "{scheme}");
        }
    }
}
