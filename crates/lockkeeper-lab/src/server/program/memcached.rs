//! memcached.

use super::{Clock, Program};
use crate::server::place::{Place, words};
use crate::server::tool::MEMCACHED;
use crate::server::wire;
use anyhow::{Result, bail};
use std::ffi::OsString;

/// A memcached server. It has no data to keep.
#[derive(Debug, Clone, Default)]
pub struct Memcached {
    _private: (),
}

impl Program for Memcached {
    fn name(&self) -> &'static str {
        "memcached"
    }

    fn user(&self) -> Option<&'static str> {
        Some("memcache")
    }

    fn prepare(&self, _place: &Place) -> Result<()> {
        Ok(())
    }

    fn command(&self, place: &Place) -> Result<Vec<OsString>> {
        let port = place.port().to_string();
        Ok(words![MEMCACHED.path()?, "-l", "127.0.0.1", "-p", port, "-U", "0", "-m", "64"])
    }

    fn ask(&self, place: &Place) -> Result<()> {
        let said = wire::line::ask(place.port(), "version\r\nquit\r\n")?;
        if said.starts_with("VERSION ") { Ok(()) } else { bail!("memcached said {said:?}") }
    }

    fn url(&self, place: &Place) -> String {
        format!("memcached://127.0.0.1:{}", place.port())
    }

    fn clock(&self) -> Clock {
        Clock::Unsupported("it counts time with the monotonic clock")
    }
}
