//! A snapshot of ZooKeeper's, written by hand: a server that has counted for years, in a moment.

use anyhow::Result;
use lockkeeper_lab::server::Server;

/// What a node has counted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counted {
    /// How many children were ever made below it: the number of the next.
    pub(crate) children: i32,
    /// How often it was written to.
    pub(crate) version: i32,
}

/// A container, removed by the server when it has been empty for a while.
const CONTAINER: i64 = i64::MIN;
/// The transaction of which the snapshot is.
const ZXID: i64 = 0x10;

/// Starts the server again with these nodes and nothing else, each behind the one above it.
pub(crate) fn restart_with(server: &Server, nodes: &[(&str, Counted)]) -> Result<()> {
    server.kill()?;
    let folder = server.place().data().join("version-2");
    for file in std::fs::read_dir(&folder)? {
        std::fs::remove_file(file?.path())?;
    }
    let path = folder.join(format!("snapshot.{ZXID:x}"));
    std::fs::write(&path, snapshot(nodes)?)?;
    // The server reads it as another user.
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&path, readable)?;
    server.restart()
}

fn snapshot(nodes: &[(&str, Counted)]) -> Result<Vec<u8>> {
    let mut bytes = b"ZKSN".to_vec();
    bytes.extend(2_i32.to_be_bytes());
    bytes.extend((-1_i64).to_be_bytes());
    // No sessions, and one list of who may do what: everyone everything.
    for number in [0_i32, 1] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.extend(1_i64.to_be_bytes());
    bytes.extend(1_i32.to_be_bytes());
    bytes.extend(31_i32.to_be_bytes());
    text(&mut bytes, "world")?;
    text(&mut bytes, "anyone")?;
    for own in ["", "/zookeeper", "/zookeeper/quota"] {
        node(&mut bytes, own, Counted::default(), 0)?;
    }
    for (path, counted) in nodes {
        node(&mut bytes, path, *counted, CONTAINER)?;
    }
    text(&mut bytes, "/")?;
    let sum = i64::from(adler32(&bytes));
    bytes.extend(sum.to_be_bytes());
    text(&mut bytes, "/")?;
    Ok(bytes)
}

fn node(bytes: &mut Vec<u8>, path: &str, counted: Counted, owner: i64) -> Result<()> {
    text(bytes, path)?;
    text(bytes, "")?;
    bytes.extend(1_i64.to_be_bytes());
    // Made and changed by the first transaction, at the beginning of time.
    for number in [1_i64, 1, 0, 0] {
        bytes.extend(number.to_be_bytes());
    }
    for number in [counted.version, counted.children, 0] {
        bytes.extend(number.to_be_bytes());
    }
    for number in [owner, 1] {
        bytes.extend(number.to_be_bytes());
    }
    Ok(())
}

fn text(bytes: &mut Vec<u8>, text: &str) -> Result<()> {
    bytes.extend(i32::try_from(text.len())?.to_be_bytes());
    bytes.extend(text.as_bytes());
    Ok(())
}

fn adler32(bytes: &[u8]) -> u32 {
    const PRIME: u32 = 65_521;
    let (mut low, mut high) = (1_u32, 0_u32);
    for byte in bytes {
        low = (low + u32::from(*byte)) % PRIME;
        high = (high + low) % PRIME;
    }
    high << 16 | low
}
