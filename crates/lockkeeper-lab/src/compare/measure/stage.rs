//! The server of a row. All of them write what they answer to the disk first, where they can: speed that
//! is bought with forgetting would not be compared with speed that is not.

use super::super::contender::Contender;
use crate::server::{Kind, Lab, Server};
use anyhow::Result;

/// A running store, as one row wants it.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Of a store without a server, nothing.
    pub(crate) server: Option<Server>,
    pub(crate) url: String,
}

impl Stage {
    pub(crate) fn open(lab: &Lab, contender: Contender) -> Result<Self> {
        let Some(kind) = contender.kind() else {
            let url = match contender.store() {
                "sqlite" => {
                    let folder = tempfile::tempdir_in(lab.folder())?.keep();
                    format!("sqlite:{}", folder.join("locks.db").display())
                }
                store => format!("{store}:"),
            };
            return Ok(Self { server: None, url });
        };
        kind.available()?;
        let server = match kind {
            Kind::Redis if matches!(contender, Contender::InMemory(_)) => lab.redis().start()?,
            Kind::Redis => lab.redis().durable().start()?,
            Kind::Redlock => lab.redlock().start()?,
            Kind::ZooKeeper => lab.zookeeper().synced().start()?,
            Kind::Postgres => lab.postgres().config("fsync=on").start()?,
            Kind::MariaDb => lab.mariadb().config("--innodb-flush-log-at-trx-commit=1").start()?,
            Kind::Memcached => lab.memcached().start()?,
            Kind::Etcd => lab.etcd().start()?,
        };
        let url = contender.url(&server.url())?;
        Ok(Self { server: Some(server), url })
    }
}
