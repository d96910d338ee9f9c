//! The programs the lab can run, one file each.

pub(crate) mod etcd;
pub(crate) mod mariadb;
pub(crate) mod memcached;
pub(crate) mod postgres;
pub(crate) mod redis;
pub(crate) mod redis_cluster;
pub(crate) mod redis_replicated;
pub(crate) mod sentinel;
pub(crate) mod tls;
pub(crate) mod zookeeper;

use super::place::Place;
use anyhow::Result;
use nix::sys::signal::Signal;
use std::ffi::OsString;
use std::fmt::Debug;

/// How a program is started and spoken to.
///
/// All of it must be bound to 127.0.0.1, log to its output, and stay in the foreground.
pub trait Program: Debug + Send + Sync {
    /// Its name in a word.
    fn name(&self) -> &'static str;

    /// How many ports it takes; the first is the one clients use.
    fn ports(&self) -> usize {
        1
    }

    /// Those it must be seen to listen on before it counts as ready.
    fn listens_on(&self, place: &Place) -> Vec<u16> {
        vec![place.port()]
    }

    /// The user to run as where we are root, for a program that refuses that.
    fn user(&self) -> Option<&'static str> {
        None
    }

    /// Puts into the empty data folder what must be there before the first start.
    ///
    /// # Errors
    /// When that fails.
    fn prepare(&self, place: &Place) -> Result<()>;

    /// The command line.
    ///
    /// # Errors
    /// When the program is not installed.
    fn command(&self, place: &Place) -> Result<Vec<OsString>>;

    /// Asks one question of its protocol that only a server that is ready answers well.
    ///
    /// # Errors
    /// When there is no such answer within a second or so.
    fn ask(&self, place: &Place) -> Result<()>;

    /// The URL of it as a store.
    fn url(&self, place: &Place) -> String;

    /// The signal that asks it to end soon.
    fn stop_signal(&self) -> Signal {
        Signal::SIGTERM
    }

    /// Whether its clock can be set.
    fn clock(&self) -> Clock;

    /// Itself, where it speaks the protocol of Redis.
    fn redis(&self) -> Option<&redis::Redis> {
        None
    }
}

/// How the clock of a program can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// With the library loaded before it.
    Preload,
    /// With the library, and libc right after: the program brings an allocator of its own, which
    /// would deadlock when the library asks for memory while it is still starting.
    PreloadBeforeLibc,
    /// Not at all, and why.
    Unsupported(&'static str),
}
