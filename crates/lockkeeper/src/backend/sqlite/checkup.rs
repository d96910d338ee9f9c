//! What an operator should know of the file: version, how it is written, what it lies on.

use super::client::Client;
use super::client::transaction::Transaction;
use crate::backend::{Finding, Moment, Subject};
use crate::error::Result;
use std::path::Path;
use std::time::Duration;

/// File systems whose locks and shared memory do not reach from machine to machine.
const FAR: [&str; 9] =
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "fuse.sshfs", "fuse.glusterfs"];

pub(super) async fn checkup(client: &Client) -> Result<Vec<Finding>> {
    let (version, journal) = client.look(settings).await?;
    let mut found = vec![Finding::fine(
        Subject::Version,
        format!("SQLite {version}, {}", client.path().display()),
    )];
    found.push(match journal.as_str() {
        "wal" => Finding::fine(
            Subject::Persistence,
            "survives the end of every process; when the machine goes down, so do the holders",
        ),
        other => Finding::problem(
            Subject::Persistence,
            format!("the journal mode is {other}"),
            "somebody has changed it: let no other program write to this file",
        ),
    });
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    found.push(match file_system(&mounts, client.path()) {
        Some(kind) if FAR.contains(&kind.as_str()) => Finding::problem(
            Subject::Replication,
            format!(
                "the file is on a network file system ({kind}), where SQLite's locks are not safe"
            ),
            "put the file on a disk of this machine, or use a store with a server",
        ),
        Some(kind) => {
            Finding::fine(Subject::Replication, format!("one file on this machine ({kind})"))
        }
        None => Finding::fine(Subject::Replication, "one file on this machine"),
    });
    found.push(Finding::fine(Subject::Eviction, "a file throws nothing away"));
    found.push(Finding::fine(Subject::Clock, "is the clock of this machine"));
    Ok(found)
}

pub(super) async fn round_trips(client: &Client, count: usize) -> Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let sent = Moment::now();
        let one = |tx: &Transaction<'_>| tx.connection.query_row("SELECT 1", [], |_| Ok(()));
        client.look(one).await?;
        took.push(Moment::now().since(sent));
    }
    Ok(took)
}

fn settings(tx: &Transaction<'_>) -> rusqlite::Result<(String, String)> {
    let version = tx.connection.query_row("SELECT sqlite_version()", [], |row| row.get(0))?;
    let journal = tx.connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    Ok((version, journal))
}

/// The kind of the file system that a path is on, by the lines of `/proc/self/mounts`.
fn file_system(mounts: &str, path: &Path) -> Option<String> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (folder, kind) = (words.next()?, words.next()?);
        path.starts_with(folder).then(|| (folder.len(), kind.to_owned()))
    });
    // Of several on the same folder, the last one is what is seen.
    mounts.max_by_key(|(length, _)| *length).map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_counts() {
        let mounts =
            "/dev/sda / ext4 rw 0 0\nhost:/x /srv nfs4 rw 0 0\ntmpfs /srv/fast tmpfs rw 0 0\n";
        let of = |path: &str| file_system(mounts, Path::new(path));
        assert_eq!(of("/home/locks.db").as_deref(), Some("ext4"));
        assert_eq!(of("/srv/locks.db").as_deref(), Some("nfs4"));
        assert_eq!(of("/srv/fast/locks.db").as_deref(), Some("tmpfs"));
        assert_eq!(of("/srvx/locks.db").as_deref(), Some("ext4"));
        assert_eq!(file_system("", Path::new("/a")), None);
    }
}
