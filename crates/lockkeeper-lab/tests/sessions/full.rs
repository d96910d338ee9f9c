//! A table of holders in memory that is full.

use crate::LONG;
use anyhow::{Result, ensure};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::Lab;
use lockkeeper_lab::server::wire::mariadb;

cases!(a_full_table_of_holders_forgets_old_names_and_locks_once);

/// The lock is taken before its holder is written down. Where that fails and is done again, the lock
/// must not be taken twice: the server counts, and would have it given back twice.
async fn a_full_table_of_holders_forgets_old_names_and_locks_once(lab: &Lab) -> Result<()> {
    let server = lab.mariadb().config("--max-heap-table-size=65536").start()?;
    let url = format!("{}?recipe=get-lock", server.url());
    let (one, other) = (lockkeeper::connect(&url).await?, lockkeeper::connect(&url).await?);
    let columns =
        "id, name, token, session, owner, identity, note, since, lease_ms, claim, believed";
    let table = "lockkeeper.lockkeeper_get_lock";
    let mut filled = 0;
    let full = loop {
        let old = format!("UNHEX(MD5({filled})), 'old/{filled}', 1, 0, '', '', '', 1, 0, '', 0");
        let insert = format!("INSERT INTO {table} ({columns}) SELECT {old}");
        match mariadb::query(server.port(), &insert) {
            Ok(_) if filled < 1000 => filled += 1,
            Ok(_) => break false,
            Err(_) => break true,
        }
    };
    ensure!(full && filled > 5, "unknown: {filled} rows did not fill the table");
    // Whether or not its life is marked, a server with a full table takes new keepers.
    mariadb::query(server.port(), &format!("DELETE FROM {table} WHERE name LIKE 'the life%'"))?;
    let again = format!(
        "INSERT INTO {table} ({columns}) SELECT UNHEX(MD5('one more')), 'old', 1, 0, '', '', '', 1, 0, '', 0"
    );
    mariadb::query(server.port(), &again)?;
    lockkeeper::connect(&url).await?;
    let held = one.lock("new").ttl(LONG).acquire().await?;
    ensure!(other.lock("new").try_acquire().await?.is_none(), "it is not held");
    held.release().await?;
    let next = other.lock("new").ttl(LONG).try_acquire().await?;
    ensure!(next.is_some(), "it was taken twice and given back once");
    Ok(())
}
