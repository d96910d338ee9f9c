//! What a lock that is held costs at the server: by the server's own count where it has one, else by the
//! memory of its processes.

use super::super::cell::Cell;
use super::Bench;
use super::stage::Stage;
use crate::server::wire::{http, line, resp::Resp};
use crate::server::{Kind, Server};
use anyhow::{Context, Result, ensure};
use std::collections::HashMap;
use std::fs;

/// How many locks are held; fewer where each has a session of the database.
const LOCKS: u32 = 300;
const SESSIONS: u32 = 40;

/// One row's cell.
pub(super) fn measure(bench: &mut Bench<'_>, stage: &Stage) {
    let cell = match (bench.kind, &stage.server) {
        (Some(kind), Some(server)) => Cell::of(per_lock(bench, kind, server)),
        _ => Cell::not_applicable("there is no server"),
    };
    bench.put("memory", cell);
}

fn per_lock(bench: &Bench<'_>, kind: Kind, server: &Server) -> Result<f64> {
    let sql = matches!(kind, Kind::Postgres | Kind::MariaDb);
    let sessions = sql && bench.contender.recipe().is_some_and(|it| it.capability.session);
    let locks = if sessions { SESSIONS } else { LOCKS };
    let mut peer = bench.peer()?;
    // Connections, scripts and tables are made by the first few.
    for number in 0..3 {
        peer.must(&format!("lock warm/{number} 60000"), "held")?;
    }
    let before = used(kind, server)?;
    for number in 0..locks {
        peer.must(&format!("lock memory/{number} 60000"), "held")?;
    }
    let after = used(kind, server)?;
    ensure!(after > before, "it uses no more memory than before, as far as it can be seen");
    Ok((after - before) / f64::from(locks))
}

/// What the server uses, in bytes.
fn used(kind: Kind, server: &Server) -> Result<f64> {
    match kind {
        Kind::Redis | Kind::Redlock => {
            let ports = server.place().ports().iter();
            let each = ports.map(|port| {
                let said = Resp::connect(*port)?.info("memory")?;
                number(&said, "used_memory:")
            });
            each.sum()
        }
        Kind::Memcached => number(&line::ask(server.port(), "stats\r\nquit\r\n")?, "STAT bytes "),
        Kind::ZooKeeper => number(&line::ask(server.port(), "mntr")?, "zk_approximate_data_size"),
        Kind::Etcd => {
            let said = http::get(server.port(), "/metrics")?;
            number(&said, "etcd_mvcc_db_total_size_in_use_in_bytes ")
        }
        Kind::Postgres | Kind::MariaDb => {
            resident(server.pid().context("the server is not running")?)
        }
    }
}

/// The number behind these words, at the beginning of a line.
fn number(text: &str, words: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(words));
    let number = line.with_context(|| format!("it does not say {words:?}"))?.trim();
    number.parse().with_context(|| format!("{number:?} is no number"))
}

/// The memory of a process and its descendants; what several share counts once.
fn resident(root: u32) -> Result<f64> {
    let mut parents = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // One that has ended meanwhile is none of ours.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
        parents.insert(pid, parent.and_then(|parent| parent.parse::<u32>().ok()).unwrap_or(0));
    }
    let belongs = |mut pid: u32| loop {
        match parents.get(&pid) {
            _ if pid == root => return true,
            Some(parent) if *parent > 1 => pid = *parent,
            _ => return false,
        }
    };
    let mut kilobytes = 0.0;
    for pid in parents.keys().copied().filter(|pid| belongs(*pid)) {
        let Ok(said) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else { continue };
        let line = said.lines().find_map(|line| line.strip_prefix("Pss:"));
        let figure = line.and_then(|line| line.split_whitespace().next());
        kilobytes += figure.and_then(|figure| figure.parse::<f64>().ok()).unwrap_or(0.0);
    }
    ensure!(kilobytes > 0.0, "the memory of the server's processes cannot be seen");
    Ok(kilobytes * 1024.0)
}
