//! The tables themselves, and many who use them at once.

use super::{LONG, keeper, number, start};
use crate::{KIND, deadlocks, query};
use anyhow::{Result, ensure};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::{Kind, Lab};
use lockkeeper_lab::trials::eventually;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

cases!(
    many_that_open_at_once_make_the_tables_once,
    no_deadlock_reaches_anyone,
    a_free_name_has_one_row_and_no_claim,
    a_release_lets_the_next_one_in_by_itself,
    what_expired_by_the_servers_clock_is_not_renewed,
    tokens_outlive_the_rows_of_their_names,
    closing_leaves_no_connection_and_no_heartbeat,
    times_are_utc_wherever_the_server_is,
);

async fn many_that_open_at_once_make_the_tables_once(lab: &Lab) -> Result<()> {
    let server = Arc::new(start(lab)?);
    let open = |_| {
        let server = server.clone();
        tokio::spawn(async move {
            let keeper = keeper(&server, "").await?;
            anyhow::Ok(keeper.lock("first").acquire().await?.release().await?)
        })
    };
    for opened in (0..8).map(open).collect::<Vec<_>>() {
        opened.await??;
    }
    Ok(())
}

/// Twelve clients: taking and giving back one of a few names, waiting, sharing, leaving. Five
/// seconds here; `LOCKKEEPER_LAB_SECONDS=30` for longer.
async fn no_deadlock_reaches_anyone(lab: &Lab) -> Result<()> {
    let server = Arc::new(start(lab)?);
    let seconds = std::env::var("LOCKKEEPER_LAB_SECONDS").ok().and_then(|it| it.parse().ok());
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(5));
    let (done, waited) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for client in 0..12_u64 {
        let keeper = keeper(&server, "").await?;
        let (done, waited) = (done.clone(), waited.clone());
        tasks.push(tokio::spawn(async move {
            let mut turn = client;
            while Instant::now() < until {
                turn += 1;
                let name = format!("name/{}", turn % 3);
                let lock = match turn % 4 {
                    0 => keeper.rw_lock(&name).read(),
                    _ => keeper.lock(&name),
                };
                let limit = Duration::from_millis(if turn % 5 == 0 { 5 } else { 20_000 });
                let guard = match lock.try_acquire().await? {
                    Some(guard) => guard,
                    None => {
                        waited.fetch_add(1, Ordering::Relaxed);
                        match lock.acquire_within(limit).await {
                            Ok(guard) => guard,
                            // The limit passed, perhaps before there was any answer.
                            Err(error) if error.kind() == lockkeeper::ErrorKind::TimedOut => {
                                continue;
                            }
                            Err(error) if error.to_string().contains("did not answer within") => {
                                continue;
                            }
                            Err(error) => return Err(error),
                        }
                    }
                };
                done.fetch_add(1, Ordering::Relaxed);
                guard.release().await?;
            }
            Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    let (done, waited) = (done.load(Ordering::Relaxed), waited.load(Ordering::Relaxed));
    ensure!(done > 100 && waited > 20, "too little happened: {done} held, {waited} waited");
    let counted = deadlocks(&server)?;
    ensure!(counted == 0, "the server counted {counted} deadlocks in {done} holds");
    Ok(())
}

async fn a_free_name_has_one_row_and_no_claim(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let (one, two) = (keeper(&server, "").await?, keeper(&server, "").await?);
    let held = one.lock("rows").ttl(LONG).acquire().await?;
    let next = super::waiting(&two, "rows");
    super::queue_of(&one, "rows", 1).await;
    let claims = "SELECT count(*) FROM lockkeeper_claim WHERE name >= ' '";
    ensure!(number(&server, claims)? == 2, "a holder and a waiter are two claims");
    held.release().await?;
    next.await??.release().await?;
    ensure!(number(&server, claims)? == 0, "a claim was left");
    let free = "SELECT count(*) FROM lockkeeper WHERE name = 'rows' AND place = 0";
    ensure!(number(&server, free)? == 1, "the name's row is not there, or not free");
    Ok(())
}

/// Not when the next one looks: then it would be late by the time between two looks.
async fn a_release_lets_the_next_one_in_by_itself(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let (one, two) = (keeper(&server, "").await?, keeper(&server, "").await?);
    let held = one.lock("next").ttl(LONG).acquire().await?;
    let next = super::waiting(&two, "next");
    super::queue_of(&one, "next", 1).await;
    held.release().await?;
    let waiting = "SELECT count(*) FROM lockkeeper_claim WHERE name = 'next' AND state = 9";
    let waiting = number(&server, waiting)?;
    ensure!(waiting == 0, "{waiting} wait for a lock that was given back");
    Ok(next.await??.release().await?)
}

/// Even if nobody else came: another may have been told that the name was free.
async fn what_expired_by_the_servers_clock_is_not_renewed(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let one = keeper(&server, "").await?;
    let held = one.lock("expired").ttl(Duration::from_secs(6)).acquire().await?;
    query(&server, "UPDATE lockkeeper SET expires = 1 WHERE name = 'expired'")?;
    // The renewals of a third of the ttl would put this off for ever.
    let lost = tokio::time::timeout(super::PATIENT, held.lost()).await;
    ensure!(lost.is_ok(), "a claim that had expired was renewed");
    let said = held.release().await;
    ensure!(said.is_err(), "a claim that had expired was given back");
    Ok(())
}

/// As the cleaner leaves it: no row, and a floor above its token; with a clock that went back.
async fn tokens_outlive_the_rows_of_their_names(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let one = keeper(&server, "").await?;
    for name in ["cleaned", "tried"] {
        one.lock(name).acquire().await?.release().await?;
    }
    let future = 4_000_000_000_000_000_i64;
    query(
        &server,
        &format!(
            "INSERT INTO lockkeeper_claim (name, state, ticket, id, owner, process, mode, token, \
             ttl, since, expires, identity, note) SELECT {}, 0, 0, '', '', '', 0, {future}, 0, 0, \
             9223372036854775807, '', ''",
            crate::FLOOR
        ),
    )?;
    query(&server, "DELETE FROM lockkeeper WHERE name IN ('cleaned', 'tried')")?;
    // By a keeper that has seen the rows.
    let waited = one.lock("cleaned").acquire_within(super::PATIENT).await?;
    let tried = one.lock("tried").try_acquire().await?;
    for token in [waited.token(), tried.and_then(|tried| tried.token())] {
        let token = token.map(|token| token.get());
        ensure!(token == u64::try_from(future).ok().map(|it| it + 1), "{token:?}");
    }
    Ok(())
}

async fn closing_leaves_no_connection_and_no_heartbeat(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let (one, two) = (keeper(&server, "").await?, keeper(&server, "").await?);
    let held = one.lock("closed").ttl(LONG).acquire().await?;
    let next = super::waiting(&two, "closed");
    super::queue_of(&one, "closed", 1).await;
    held.release().await?;
    next.await??.release().await?;
    ensure!(one.close(LONG).await && two.close(LONG).await, "they did not come to rest");
    eventually(
        "no connection is left",
        async || Ok((crate::sessions(&server)? == 0).then_some(())),
    )
    .await;
    let beats = "SELECT count(*) FROM lockkeeper WHERE name < ' ' AND version = 0 AND last > 9";
    ensure!(number(&server, beats)? == 0, "a heartbeat was left");
    one.lock("again").acquire().await?.release().await?;
    Ok(())
}

/// Whatever its time zone and that of its sessions is.
async fn times_are_utc_wherever_the_server_is(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    query(
        &server,
        match KIND {
            Kind::Postgres => "ALTER DATABASE lockkeeper SET timezone = 'Asia/Tokyo'",
            _ => "SET GLOBAL time_zone = '+09:00'",
        },
    )?;
    let one = keeper(&server, "").await?;
    let held = one.lock("zone").ttl(LONG).acquire().await?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let now = i64::try_from(now.as_micros())?;
    let since = number(&server, "SELECT since FROM lockkeeper WHERE name = 'zone'")?;
    let apart = Duration::from_micros(now.abs_diff(since));
    ensure!(apart < Duration::from_secs(3600), "{apart:?} from the machine's clock");
    let left = one.show("zone").await?.holders.first().map(|holder| holder.expires_in);
    ensure!(left.is_some_and(|left| left <= LONG), "{left:?} left");
    held.release().await?;
    Ok(())
}
