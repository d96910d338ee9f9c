//! A place for servers.

use super::home::Home;
use super::plan::Plan;
use super::program::Program;
use super::program::etcd::Etcd;
use super::program::mariadb::MariaDb;
use super::program::memcached::Memcached;
use super::program::postgres::Postgres;
use super::program::redis::Redis;
use super::program::zookeeper::ZooKeeper;
use super::shared::Shared;
use super::{Kind, Server};
use anyhow::Result;
use std::path::Path;
use std::sync::Arc;

/// Starts servers. They are gone when they are dropped, and at the latest when this process is,
/// however it ends.
#[derive(Debug)]
pub struct Lab {
    // Before the home: the shared servers end while there is one.
    shared: Shared,
    home: Arc<Home>,
}

impl Lab {
    /// Makes the folder and the warden.
    ///
    /// # Errors
    /// When there is no place for a folder.
    pub fn open() -> Result<Self> {
        Ok(Self { shared: Shared::default(), home: Arc::new(Home::open()?) })
    }

    /// The folder everything is in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.home.root()
    }

    /// Redis, on one server or several.
    pub fn redis(&self) -> Plan<Redis> {
        self.plan(Redis::default())
    }

    /// ZooKeeper.
    pub fn zookeeper(&self) -> Plan<ZooKeeper> {
        self.plan(ZooKeeper::default())
    }

    /// PostgreSQL, with a user and a database `lockkeeper`.
    pub fn postgres(&self) -> Plan<Postgres> {
        self.plan(Postgres::default())
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

    /// Any other program that the lab is told how to start.
    pub fn plan<P: Program + Clone + 'static>(&self, program: P) -> Plan<P> {
        Plan::new(Arc::clone(&self.home), program)
    }

    /// Starts one of a kind with its usual settings.
    ///
    /// # Errors
    /// As [`Plan::start`].
    pub fn start(&self, kind: Kind) -> Result<Server> {
        kind.available()?;
        match kind {
            Kind::Redis => self.redis().start(),
            Kind::ZooKeeper => self.zookeeper().start(),
            Kind::Postgres => self.postgres().start(),
            Kind::MariaDb => self.mariadb().start(),
            Kind::Memcached => self.memcached().start(),
            Kind::Etcd => self.etcd().start(),
        }
    }

    /// The URL of one that many tests use, and none of them breaks: that of the whole run if there
    /// is one, else one of this lab, started when it is first asked for.
    ///
    /// # Errors
    /// As [`Plan::start`].
    pub fn shared(&self, kind: Kind) -> Result<String> {
        self.shared.url(kind, || self.start(kind))
    }
}
