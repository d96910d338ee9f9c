//! Many keepers that want one name at once.

use crate::sql::{LONG, keeper, number, queue_of, start};
use anyhow::{Result, ensure};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::{Lab, Server};

cases!(many_that_come_at_once_do_not_try_in_vain);

/// With owners that have names, as the command line has them.
const KEEPERS: usize = 40;
/// How many statements that change rows each may cost: a few tries in vain before the first waits, and
/// two to stand behind it, which was 2.5 to 3.4 of each. Where all read and all but one then tried in
/// vain, it was more than 7.
const EACH: i64 = 5;

async fn many_that_come_at_once_do_not_try_in_vain(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let mut keepers = Vec::new();
    for _ in 0..=KEEPERS {
        keepers.push(keeper(&server, "connections=2").await?);
    }
    let first = keepers.pop().unwrap_or_else(|| unreachable!("there is one more"));
    let held = first.lock("crowd").ttl(LONG).acquire().await?;
    let before = updates(&server)?;
    let waiting: Vec<_> = keepers
        .iter()
        .map(|keeper| {
            let lock = keeper.lock("crowd").ttl(LONG).owner(&keeper.owner("process"));
            tokio::spawn(async move { lock.acquire().await?.release().await })
        })
        .collect();
    queue_of(&first, "crowd", KEEPERS).await;
    let changed = updates(&server)? - before;
    held.release().await?;
    for waiting in waiting {
        waiting.await??;
    }
    let keepers = i64::try_from(KEEPERS)?;
    ensure!(changed <= keepers * EACH, "{changed} statements until {keepers} waited");
    Ok(())
}

/// How many `UPDATE` statements the server carried out, in vain or not.
fn updates(server: &Server) -> Result<i64> {
    let counted = "SELECT variable_value FROM information_schema.global_status \
                   WHERE variable_name = 'COM_UPDATE'";
    number(server, counted)
}
