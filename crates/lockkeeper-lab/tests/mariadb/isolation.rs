//! What transactions of ours are like, whatever the server's own are.

use crate::query;
use crate::sql::{LONG, keeper, queue_of, waiting};
use anyhow::{Result, ensure};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::Lab;

cases!(every_transaction_reads_what_was_committed);

/// Written down by the server itself, in the session that changes a row: with the gaps between rows
/// locked, as they are by default, those who queue at once would wait for each other.
async fn every_transaction_reads_what_was_committed(lab: &Lab) -> Result<()> {
    let server = lab.mariadb().config("--transaction-isolation=SERIALIZABLE").start()?;
    let (one, two) = (keeper(&server, "").await?, keeper(&server, "").await?);
    query(&server, "CREATE TABLE seen (level varchar(32))")?;
    for table in ["lockkeeper", "lockkeeper_claim"] {
        query(
            &server,
            &format!(
                "CREATE TRIGGER seen_{table} BEFORE UPDATE ON {table} FOR EACH ROW \
                 INSERT INTO seen VALUES (@@tx_isolation)"
            ),
        )?;
    }
    let held = one.lock("level").ttl(LONG).acquire().await?;
    let next = waiting(&two, "level");
    queue_of(&one, "level", 1).await;
    held.release().await?;
    next.await??.release().await?;
    let levels = query(&server, "SELECT DISTINCT level FROM seen")?;
    ensure!(levels == ["READ-COMMITTED"], "{levels:?}");
    Ok(())
}
