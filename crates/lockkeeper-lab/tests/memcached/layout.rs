//! What is in the server, and what is sent to it.

use crate::{LONG, PATIENT, SHORT, by_hand, cases, has, keeper, stat};
use anyhow::{Context, Result, ensure};
use lockkeeper::ErrorKind;
use lockkeeper_lab::server::{Lab, Server};
use std::time::Duration;

cases!(
    a_lock_is_one_key_and_one_command_each_way,
    the_server_keeps_it_a_little_longer_than_its_ttl,
    a_ttl_that_it_cannot_keep_is_refused,
    no_name_is_taken_for_a_command,
    what_stays_is_nobodys_also_for_more_than_thirty_days,
    a_sequence_counts_from_its_floor_and_begins_again_there,
    a_key_of_another_program_is_taken,
    a_key_of_a_later_version_is_taken,
);

/// Seconds that the server keeps a key.
fn kept(server: &Server, key: &str) -> Result<u64> {
    let said = by_hand(server, &format!("mg {key} t"))?;
    let left = said.lines().next().and_then(|line| line.strip_prefix("HD t"));
    Ok(left.with_context(|| format!("{said:?}"))?.parse()?)
}

async fn a_lock_is_one_key_and_one_command_each_way(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let keeper = keeper(&server).await?;
    keeper.lock("warm").ttl(LONG).acquire().await?.release().await?;
    let counts = || -> Result<[u64; 3]> {
        Ok([
            stat(&server, "cmd_set")?,
            stat(&server, "cmd_get")?,
            stat(&server, "delete_hits")? + stat(&server, "delete_misses")?,
        ])
    };
    let before = counts()?;
    let guard = keeper.lock("n").ttl(LONG).acquire().await?;
    let taken = counts()?;
    ensure!(taken == [before[0] + 1, before[1], before[2]], "{before:?}, then {taken:?}");
    ensure!(stat(&server, "curr_items")? == 1, "it is more than one key");
    guard.release().await?;
    let released = counts()?;
    ensure!(released == [taken[0], taken[1], taken[2] + 1], "{taken:?}, then {released:?}");
    ensure!(stat(&server, "curr_items")? == 0, "something is left");
    Ok(())
}

async fn the_server_keeps_it_a_little_longer_than_its_ttl(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let keeper = keeper(&server).await?;
    for (ttl, least, most) in [(2000, 3, 4), (2001, 4, 5), (30_000, 31, 32)] {
        let guard = keeper.lock("n").ttl(Duration::from_millis(ttl)).acquire().await?;
        let left = kept(&server, "lockkeeper:n")?;
        ensure!((least..=most).contains(&left), "a ttl of {ttl} ms is kept for {left} s");
        guard.release().await?;
    }
    // The last holder died: free after its ttl, and at most two seconds later.
    let guard = keeper.lock("n").ttl(SHORT).acquire().await?;
    let begun = std::time::Instant::now();
    guard.detach();
    let next = keeper.lock("n").ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(begun.elapsed() >= SHORT, "it was free after {:?}", begun.elapsed());
    next.release().await?;
    Ok(())
}

async fn a_ttl_that_it_cannot_keep_is_refused(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let keeper = keeper(&server).await?;
    for ttl in [Duration::ZERO, SHORT / 2, SHORT - Duration::from_nanos(1), LONG * 24 * 31 * 60] {
        let error = keeper.lock("n").ttl(ttl).try_acquire().await.err().context("taken")?;
        ensure!(error.kind() == ErrorKind::Config && error.to_string().contains("2s"), "{error:?}");
    }
    ensure!(stat(&server, "cmd_set")? == 0, "something was sent");
    Ok(())
}

async fn no_name_is_taken_for_a_command(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let keeper = keeper(&server).await?;
    let witness = keeper.lock("witness").ttl(LONG).acquire().await?;
    let names = [
        "a flush_all".to_owned(),
        "a%0d%0aflush_all%0d%0a".to_owned(),
        " ".repeat(200),
        "🔒".repeat(50),
        "a\u{2028}flush_all".to_owned(),
        "a C1 T0".to_owned(),
    ];
    for name in &names {
        let guard = keeper.lock(name).ttl(LONG).acquire().await?;
        ensure!(keeper.lock(name).try_acquire().await?.is_none(), "{name:?} was taken twice");
        ensure!(keeper.show(name).await?.name.as_str() == name, "{name:?} is shown otherwise");
        ensure!(keeper.list(name).await?.len() == 1, "{name:?} is not listed");
        guard.release().await?;
    }
    for bad in ["a\r\nflush_all\r\n", "a\nflush_all", "a\0"] {
        let error = keeper.lock(bad).try_acquire().await.err().context("taken")?;
        ensure!(error.kind() == ErrorKind::InvalidName, "{error:?}");
    }
    ensure!(has(&server, "lockkeeper:witness")?, "the server was flushed");
    witness.release().await?;
    Ok(())
}

async fn what_stays_is_nobodys_also_for_more_than_thirty_days(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let keeper = keeper(&server).await?;
    let day = Duration::from_secs(24 * 3600);
    for (name, stay) in [("short", day), ("long", 40 * day)] {
        let guard = keeper.lock(name).ttl(LONG).min_hold(stay).acquire().await?;
        guard.release().await?;
        let left = kept(&server, &format!("lockkeeper:{name}"))?;
        let wanted = stay.as_secs();
        // Less what has passed since it was acquired.
        ensure!((wanted - 60..=wanted + 2).contains(&left), "{left} s are left of {wanted}");
        ensure!(keeper.lock(name).try_acquire().await?.is_none(), "it was taken");
    }
    Ok(())
}

async fn a_sequence_counts_from_its_floor_and_begins_again_there(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let keeper = keeper(&server).await?;
    ensure!(keeper.reserve("n", 3, 0).await? == 1, "it does not begin at one");
    ensure!(keeper.reserve("n", 1, 0).await? == 4, "it did not go on");
    ensure!(keeper.reserve("n", 10, 1000).await? == 1000, "the floor was not kept");
    ensure!(keeper.reserve("n", 1, 5).await? == 1010, "it went back");
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let keeper = keeper.clone();
        tasks.push(tokio::spawn(async move {
            let mut got = Vec::new();
            for floor in 0..50 {
                got.push(keeper.reserve("n", 2, 2000 + floor * 7).await?);
            }
            anyhow::Ok(got)
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await??);
    }
    all.sort_unstable();
    ensure!(all.windows(2).all(|pair| pair[1] >= pair[0] + 2), "a number was given twice");
    // A lock of the same name is something else.
    keeper.lock("n").ttl(LONG).acquire().await?.release().await?;
    server.kill()?;
    server.restart()?;
    ensure!(keeper.reserve("n", 1, 77_000).await? == 77_000, "it did not begin at the floor");
    let end = keeper.reserve("n", 1, u64::MAX).await.err().context("past the end")?;
    ensure!(end.kind() == ErrorKind::Config, "{end:?}");
    Ok(())
}

async fn a_key_of_another_program_is_taken(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let bare = lockkeeper::connect(&format!("{}?prefix=", server.url())).await?;
    by_hand(&server, "ms orders 1 T60\r\n1")?;
    ensure!(bare.lock("orders").try_acquire().await?.is_none(), "taken twice");
    by_hand(&server, "md orders")?;
    let guard = bare.lock("orders").ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(by_hand(&server, "ms orders 1 ME T60\r\n1")?.starts_with("NS"), "added beside us");
    let error = bare.list("").await.err().context("listed")?;
    ensure!(error.kind() == ErrorKind::Unsupported, "{error:?}");
    guard.release().await?;
    ensure!(by_hand(&server, "ms orders 1 ME T60\r\n1")?.starts_with("HD"), "it is not free");
    Ok(())
}

async fn a_key_of_a_later_version_is_taken(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let keeper = keeper(&server).await?;
    let later = "lockkeeper 2\nwhatever that means";
    by_hand(&server, &format!("ms lockkeeper:n {} T60\r\n{later}", later.len()))?;
    ensure!(keeper.lock("n").try_acquire().await?.is_none(), "taken twice");
    let waited = keeper.lock("n").acquire_within(SHORT).await.err().context("taken twice")?;
    ensure!(waited.kind() == ErrorKind::TimedOut, "{waited:?}");
    // Nor is it taken away by a claim that gave up.
    ensure!(keeper.close(PATIENT).await, "it did not come to rest");
    ensure!(by_hand(&server, "mg lockkeeper:n v")?.contains(later), "it was changed");
    Ok(())
}
