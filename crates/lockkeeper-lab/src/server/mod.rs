//! Real servers on demand, from the distribution's packages, and ways to break them.
//!
//! A [`Lab`] is a folder and a warden: a small process that ends every server and removes the
//! folder when the lab is dropped, and also when the lab's process is killed.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use lockkeeper_lab::server::Lab;
//!
//! let lab = Lab::open()?;
//! let redis = lab.redis().durable().start()?;
//! println!("{}", redis.url());
//! redis.kill()?;
//! redis.restart()?;
//! # Ok(())
//! # }
//! ```

mod clock;
mod commands;
mod disk;
mod faults;
mod handle;
mod home;
mod kind;
mod lab;
mod place;
mod plan;
mod ports;
mod process;
mod program;
mod setup;
mod shared;
mod template;
pub(crate) mod tool;
pub mod wire;

pub(crate) use clock::FakeClock;
pub use commands::{servers, with_servers};
pub use disk::cannot_hang;
pub use faults::Unsupported;
pub use handle::Server;
pub use kind::{Kind, Missing, REQUIRE, missing};
pub use lab::{Fitness, Lab};
pub use place::Place;
pub use plan::Plan;
pub use ports::PortTaken;
pub use program::etcd::Etcd;
pub use program::mariadb::MariaDb;
pub use program::memcached::Memcached;
pub use program::pgbouncer::PgBouncer;
pub use program::postgres::Postgres;
pub use program::postgres_replicated::{PostgresPair, promote};
pub use program::redis::Redis;
pub use program::redis_cluster::Cluster;
pub use program::redis_replicated::Replicated;
pub use program::redlock::Redlock;
pub use program::sentinel::Sentinels;
pub use program::tls::Certificates;
pub use program::zookeeper::ZooKeeper;
pub use program::{Clock, Program};
pub use setup::setup;
pub use tool::{PROMTOOL, Tool, missing_tool};
pub(crate) use wire::resp::Resp;
