//! The machine of a run: without it, times mean nothing.

use crate::server::{Kind, Tool};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// How often a small file is written to the disk.
const FLUSHES: usize = 51;

/// What a run ran on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The model of its processors.
    pub processor: String,
    /// How many of them it has.
    pub cores: usize,
    /// Its memory in GiB.
    pub memory_gib: u64,
    /// Its kernel.
    pub kernel: String,
    /// How many processes wanted to run when the run began, as a mean over a minute.
    pub load: f64,
    /// How long four kilobytes take to reach the disk, in seconds, the middle one: what every commit
    /// waits for.
    pub flush: Option<f64>,
    /// The versions of the servers.
    pub servers: BTreeMap<String, String>,
}

impl Machine {
    /// This one; the disk is that of `folder`.
    pub(crate) fn here(folder: &Path) -> Self {
        let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        let after = |text: &str, word: &str| {
            let line = text.lines().find(|line| line.starts_with(word)).unwrap_or_default();
            line.split_once(':').map_or("", |(_, value)| value).trim().to_owned()
        };
        let kilobytes = after(&read("/proc/meminfo"), "MemTotal");
        let kilobytes = kilobytes.split(' ').next().and_then(|it| it.parse::<u64>().ok());
        let load = read("/proc/loadavg").split(' ').next().and_then(|it| it.parse().ok());
        Self {
            processor: after(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: kilobytes.unwrap_or(0).div_ceil(1024 * 1024),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: load.unwrap_or(0.0),
            flush: flush(folder),
            servers: Kind::ALL
                .into_iter()
                .filter(|kind| *kind != Kind::Redlock)
                .filter_map(|kind| Some((kind.word().to_owned(), version(kind)?)))
                .collect(),
        }
    }
}

/// The day and the minute, in UTC.
pub(crate) fn date() -> String {
    let said = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output();
    let said = said.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
    said.unwrap_or_default()
}

/// How long a small write takes to reach the disk of this folder, in seconds: the middle one.
pub(super) fn flush(folder: &Path) -> Option<f64> {
    let path = folder.join("flush");
    let mut file = File::create(&path).ok()?;
    let mut times = Vec::new();
    for _ in 0..FLUSHES {
        let begin = Instant::now();
        file.write_all(&[7; 4096]).ok()?;
        file.sync_data().ok()?;
        times.push(begin.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    // Only a file of ours that the lab removes at the latest.
    let _ = std::fs::remove_file(path);
    times.get(FLUSHES / 2).copied()
}

/// What the server's program says of itself. ZooKeeper is a jar, beside which another name tells.
fn version(kind: Kind) -> Option<String> {
    let text = if kind == Kind::ZooKeeper {
        let jar = kind.tools().last()?.find()?;
        let names = std::fs::read_dir(jar.parent()?).ok()?.flatten();
        let mut names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.find(|name| {
            let rest = name.strip_prefix("zookeeper-").unwrap_or_default();
            rest.starts_with(|it: char| it.is_ascii_digit())
        })?
    } else {
        said(kind.tools().first()?)?
    };
    let number = text.split(|it: char| !it.is_ascii_digit() && it != '.');
    let number = number.map(|part| part.trim_matches('.')).find(|part| part.contains('.'));
    number.map(str::to_owned)
}

fn said(tool: &Tool) -> Option<String> {
    let output = Command::new(tool.find()?).arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
