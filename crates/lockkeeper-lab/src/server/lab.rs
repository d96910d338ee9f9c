//! Starts servers.

use super::home::Home;
use super::plan::Plan;
use super::program::Program;
use super::program::etcd::Etcd;
use super::program::mariadb::MariaDb;
use super::program::memcached::Memcached;
use super::program::pgbouncer::PgBouncer;
use super::program::postgres::Postgres;
use super::program::redis::Redis;
use super::program::redlock::Redlock;
use super::program::zookeeper::ZooKeeper;
use super::shared::Shared;
use super::{Kind, Server};
use anyhow::Result;
use std::path::Path;
use std::sync::Arc;

/// Starts servers. A server ends when it is dropped, and at the latest when this process ends,
/// however it ends.
#[derive(Debug)]
pub struct Lab {
    // Declared before `home`, because fields drop in this order: the shared servers need the home.
    shared: Shared,
    home: Arc<Home>,
}

/// Which faults a server must support.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fitness {
    /// It keeps acknowledged writes over a kill, if it can.
    pub durable: bool,
    /// Its clock can be set.
    pub clock: bool,
    /// Its disk can hang.
    pub hanging_disk: bool,
}

impl Fitness {
    /// The plan of a server with these abilities.
    pub fn of<P: Program + Clone + 'static>(self, mut plan: Plan<P>) -> Plan<P> {
        if self.clock {
            plan = plan.clock();
        }
        if self.hanging_disk {
            plan = plan.hanging_disk();
        }
        plan
    }
}

impl Lab {
    /// Creates the folder and starts the warden.
    ///
    /// # Errors
    /// When the folder cannot be created.
    pub fn open() -> Result<Self> {
        Ok(Self { shared: Shared::default(), home: Arc::new(Home::open()?) })
    }

    /// The folder that contains everything of this lab.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.home.root()
    }

    /// Redis, as one server or several.
    pub fn redis(&self) -> Plan<Redis> {
        self.plan(Redis::default())
    }

    /// Five independent Redis servers that are started and broken together.
    pub fn redlock(&self) -> Plan<Redlock> {
        self.plan(Redlock::default())
    }

    /// ZooKeeper.
    pub fn zookeeper(&self) -> Plan<ZooKeeper> {
        self.plan(ZooKeeper::default())
    }

    /// PostgreSQL, with a user and a database `lockkeeper`.
    pub fn postgres(&self) -> Plan<Postgres> {
        self.plan(Postgres::default())
    }

    /// `PgBouncer` in front of the PostgreSQL on this port, which hands every transaction to
    /// whichever of its few sessions is idle.
    pub fn pgbouncer(&self, postgres: u16) -> Plan<PgBouncer> {
        self.plan(PgBouncer::before(postgres))
    }

    /// MariaDB, with a user and a database `lockkeeper`.
    pub fn mariadb(&self) -> Plan<MariaDb> {
        self.plan(MariaDb::default())
    }

    /// memcached.
    pub fn memcached(&self) -> Plan<Memcached> {
        self.plan(Memcached::default())
    }

    /// etcd.
    pub fn etcd(&self) -> Plan<Etcd> {
        self.plan(Etcd::default())
    }

    /// Any other program, described by a [`Program`].
    pub fn plan<P: Program + Clone + 'static>(&self, program: P) -> Plan<P> {
        Plan::new(Arc::clone(&self.home), program)
    }

    /// Starts one server of a kind with its default settings.
    ///
    /// # Errors
    /// As [`Plan::start`].
    pub fn start(&self, kind: Kind) -> Result<Server> {
        self.start_fit(kind, Fitness::default())
    }

    /// Starts one server of a kind that supports these faults.
    ///
    /// # Errors
    /// As [`Plan::start`].
    pub fn start_fit(&self, kind: Kind, fitness: Fitness) -> Result<Server> {
        kind.available()?;
        match kind {
            Kind::Redis if fitness.durable => fitness.of(self.redis().durable()).start(),
            Kind::Redis => fitness.of(self.redis()).start(),
            Kind::Redlock => fitness.of(self.redlock()).start(),
            Kind::ZooKeeper => fitness.of(self.zookeeper()).start(),
            Kind::Postgres => fitness.of(self.postgres()).start(),
            Kind::MariaDb => fitness.of(self.mariadb()).start(),
            Kind::Memcached => fitness.of(self.memcached()).start(),
            Kind::Etcd => fitness.of(self.etcd()).start(),
        }
    }

    /// The URL of a server that many tests use and no test breaks: the server of the whole run if
    /// there is one, else one of this lab, started on first use.
    ///
    /// # Errors
    /// As [`Plan::start`].
    pub fn shared(&self, kind: Kind) -> Result<String> {
        self.shared.url(kind, || self.start(kind))
    }
}
