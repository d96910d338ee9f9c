//! Five independent Redis servers, as one: what `redlock://` is made of.
//!
//! They are started, paused and killed together. Tests that break one of them start five servers of
//! their own.

use super::{Clock, Program};
use crate::server::place::{Place, words};
use crate::server::tool::REDIS;
use crate::server::wire::resp::Resp;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::path::PathBuf;

/// How many there are.
const NODES: usize = 5;

/// Runs a server for each configuration, until all of them are told to end.
const TOGETHER: &str = r#"
trap 'kill $pids; wait; exit 0' TERM
server=$1
shift
for conf in "$@"; do
    "$server" "$conf" &
    pids="$pids $!"
done
wait
"#;

/// Five Redis servers that know nothing of each other, and keep what they have answered.
#[derive(Debug, Clone, Default)]
pub struct Redlock {
    _private: (),
}

/// Has servers that are started for the first time say that they have kept their data for long, so that they
/// vote at once. After a loss of that data nothing says so any more.
fn grow_up(place: &Place) -> Result<()> {
    let mark = place.folder().join("was-started");
    if mark.exists() {
        return Ok(());
    }
    for port in place.ports() {
        Resp::connect(*port)?.ask(&["SET", "lockkeeper:redlock:kept-since", "1"])?;
    }
    Ok(std::fs::write(mark, "")?)
}

fn folder(place: &Place, number: usize) -> PathBuf {
    place.data().join(format!("node-{number}"))
}

impl Program for Redlock {
    fn name(&self) -> &'static str {
        "redlock"
    }

    fn ports(&self) -> usize {
        NODES
    }

    /// It is its children that listen: [`ask`](Self::ask) looks whether they are the ones that answer.
    fn listens_on(&self, _: &Place) -> Vec<u16> {
        Vec::new()
    }

    fn prepare(&self, place: &Place) -> Result<()> {
        for (number, port) in place.ports().iter().enumerate() {
            let folder = folder(place, number);
            std::fs::create_dir_all(&folder)?;
            let text = format!(
                "bind 127.0.0.1\nport {port}\ndir \"{}\"\nsave \"\"\ndaemonize no\n\
                 appendonly yes\nappendfsync always\n",
                folder.display()
            );
            std::fs::write(folder.join("redis.conf"), text)?;
        }
        Ok(())
    }

    fn command(&self, place: &Place) -> Result<Vec<OsString>> {
        let mut words = words!["/bin/sh", "-c", TOGETHER, "redlock", REDIS.path()?];
        words.extend((0..NODES).map(|number| folder(place, number).join("redis.conf").into()));
        Ok(words)
    }

    fn ask(&self, place: &Place) -> Result<()> {
        for (number, port) in place.ports().iter().enumerate() {
            let said = Resp::connect(*port)?.ask(&["CONFIG", "GET", "dir"])?;
            let ours = folder(place, number);
            let ours = ours.to_str().context("a folder with a name")?;
            ensure!(format!("{said:?}").contains(ours), "another server has port {port}");
        }
        grow_up(place)
    }

    fn url(&self, place: &Place) -> String {
        let hosts: Vec<_> = place.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redlock://{}", hosts.join(","))
    }

    fn clock(&self) -> Clock {
        Clock::Unsupported("there are five clocks: set that of one server instead")
    }
}
