//! The programs that the lab can run, one file each.

pub(crate) mod etcd;
pub(crate) mod mariadb;
pub(crate) mod memcached;
pub(crate) mod pgbouncer;
pub(crate) mod postgres;
pub(crate) mod postgres_replicated;
pub(crate) mod redis;
pub(crate) mod redis_cluster;
pub(crate) mod redis_replicated;
pub(crate) mod redlock;
pub(crate) mod sentinel;
pub(crate) mod tls;
pub(crate) mod zookeeper;

use super::place::Place;
use anyhow::Result;
use nix::sys::signal::Signal;
use std::ffi::OsString;
use std::fmt::Debug;

/// How a program is started and reached.
///
/// The program must bind to 127.0.0.1 only, log to its output, and stay in the foreground.
pub trait Program: Debug + Send + Sync {
    /// Its name, one word.
    fn name(&self) -> &'static str;

    /// How many ports it needs; the first is the one that clients use.
    fn ports(&self) -> usize {
        1
    }

    /// The ports it must listen on before it counts as ready.
    fn listens_on(&self, place: &Place) -> Vec<u16> {
        vec![place.port()]
    }

    /// The user to run as if we are root, for a program that refuses to run as root.
    fn user(&self) -> Option<&'static str> {
        None
    }

    /// Fills the empty data folder before the first start.
    ///
    /// # Errors
    /// When that fails.
    fn prepare(&self, place: &Place) -> Result<()>;

    /// The command line.
    ///
    /// # Errors
    /// When the program is not installed.
    fn command(&self, place: &Place) -> Result<Vec<OsString>>;

    /// Sends one request of its protocol that only a ready server answers correctly.
    ///
    /// # Errors
    /// When there is no such answer within a second or so.
    fn ask(&self, place: &Place) -> Result<()>;

    /// Its URL as a store.
    fn url(&self, place: &Place) -> String;

    /// The signal that asks it to end soon.
    fn stop_signal(&self) -> Signal {
        Signal::SIGTERM
    }

    /// Whether, and how, its clock can be set.
    fn clock(&self) -> Clock;

    /// Itself, if it speaks the Redis protocol.
    fn redis(&self) -> Option<&redis::Redis> {
        None
    }
}

/// How the clock of a program can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// By preloading the library.
    Preload,
    /// By preloading the library, and libc right after it: the program has its own allocator, which
    /// would deadlock when the library allocates during startup.
    PreloadBeforeLibc,
    /// Not at all, for this reason.
    Unsupported(&'static str),
}
