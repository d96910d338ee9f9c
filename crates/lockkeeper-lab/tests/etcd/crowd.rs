//! Many who wait, and many who hold.

use crate::{LASTING, LONG, cases, keeper, queue_of};
use anyhow::{Context, Result, ensure};
use lockkeeper_lab::server::{Lab, Server, wire};
use std::time::Duration;

cases!(
    of_a_thousand_who_wait_each_release_wakes_one,
    a_permit_that_goes_wakes_few_of_those_who_wait,
    a_hold_is_watched_without_delay,
    a_thousand_holds_share_their_heartbeats,
    a_busy_try_writes_nothing,
    several_names_are_one_transaction,
);

/// A figure that etcd keeps of itself.
fn figure(server: &Server, start: &str) -> Result<u64> {
    let said = wire::http::get(server.port(), "/metrics")?;
    let line = said.lines().find(|line| line.starts_with(start)).context("no such figure")?;
    let number = line.rsplit(' ').next().unwrap_or_default();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and small")]
    Ok(number.parse::<f64>()? as u64)
}

fn requests(server: &Server, method: &str, service: &str) -> Result<u64> {
    let start = format!(
        "grpc_server_started_total{{grpc_method=\"{method}\",grpc_service=\"etcdserverpb.{service}\""
    );
    figure(server, &start)
}

async fn of_a_thousand_who_wait_each_release_wakes_one(lab: &Lab) -> Result<()> {
    const WAITERS: usize = 1000;
    let server = lab.etcd().start()?;
    let mut keepers = Vec::new();
    for _ in 0..5 {
        // All at once they may keep a small machine busy for a while.
        keepers.push(keeper(&server, &format!("{LASTING}&timeout=20s")).await?);
    }
    let held = keepers[0].lock("crowded").ttl(LONG).acquire().await?;
    let mut waiters = Vec::new();
    for number in 0..WAITERS {
        let lock = keepers[number % 5].lock("crowded").ttl(LONG);
        waiters.push(tokio::spawn(async move { lock.acquire().await?.release().await }));
    }
    queue_of(&keepers[0], "crowded", WAITERS).await;
    // Everyone is watching whom it waits for.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let looks = requests(&server, "Range", "KV")?;
    let begin = std::time::Instant::now();
    held.release().await?;
    for waiter in waiters {
        waiter.await??;
    }
    let looks = usize::try_from(requests(&server, "Range", "KV")? - looks)?;
    // Each of them also looks every ten seconds, come what may.
    let by_the_clock = WAITERS * (usize::try_from(begin.elapsed().as_secs())? / 10 + 1);
    let most = WAITERS * 3 / 2 + by_the_clock;
    ensure!(looks >= WAITERS, "{looks} looks at {WAITERS} hand-overs show nothing");
    ensure!(looks <= most, "{looks} looks at {WAITERS} hand-overs, in {:?}", begin.elapsed());
    Ok(())
}

async fn a_permit_that_goes_wakes_few_of_those_who_wait(lab: &Lab) -> Result<()> {
    const WAITERS: usize = 50;
    let server = lab.etcd().start()?;
    let (one, two) = (keeper(&server, LASTING).await?, keeper(&server, LASTING).await?);
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(one.semaphore("gate", 2).ttl(LONG).acquire().await?);
    }
    let (granted, mut grants) = tokio::sync::mpsc::unbounded_channel();
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..WAITERS {
        let (gate, granted) = (two.semaphore("gate", 2).ttl(LONG), granted.clone());
        waiters.spawn(async move { granted.send(gate.acquire().await?).context("unwanted") });
    }
    queue_of(&one, "gate", WAITERS).await;
    // Everyone is watching whom it waits for.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let events = || figure(&server, "etcd_debugging_mvcc_events_total");
    let (looks, told) = (requests(&server, "Range", "KV")?, events()?);
    held.pop().context("two are held")?.release().await?;
    let next = grants.recv().await.context("nobody was granted it")?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (looks, told) = (requests(&server, "Range", "KV")? - looks, events()? - told);
    // Two are behind the one that went, and may look twice; the rest are signs of life.
    ensure!(looks <= 10, "{looks} looks at one of {WAITERS} let in");
    // The holder's own watch is one more.
    ensure!(told <= 6, "{told} events for one of {WAITERS} let in");
    drop((held, next));
    for _ in 1..WAITERS {
        drop(grants.recv().await.context("not everyone was let in")?);
    }
    Ok(())
}

async fn a_hold_is_watched_without_delay(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let (one, two) = (keeper(&server, LASTING).await?, keeper(&server, LASTING).await?);
    two.lock("warm").acquire().await?.release().await?;
    for round in 0..10 {
        let held = one.lock("watched").ttl(LONG).acquire().await?;
        // Something else is written before it is watched.
        two.lock("other").ttl(LONG).acquire().await?.release().await?;
        let begin = std::time::Instant::now();
        while begin.elapsed() < Duration::from_millis(60) {
            // What began in the past is told only at the next tick of etcd's, every 100 ms.
            let late = figure(&server, "etcd_debugging_mvcc_slow_watcher_total")?;
            ensure!(late == 0, "it would be told late, in round {round}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        held.release().await?;
    }
    Ok(())
}

async fn a_thousand_holds_share_their_heartbeats(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let keeper = keeper(&server, "session=3s").await?;
    let mut guards = Vec::new();
    for number in 0..1000 {
        guards.push(keeper.lock(format!("shared/{number}")).ttl(LONG).acquire().await?);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (signs, looks) =
        (requests(&server, "LeaseKeepAlive", "Lease")?, requests(&server, "Range", "KV")?);
    tokio::time::sleep(Duration::from_secs(6)).await;
    let (signs, looks) = (
        requests(&server, "LeaseKeepAlive", "Lease")? - signs,
        requests(&server, "Range", "KV")? - looks,
    );
    ensure!((2..=40).contains(&signs), "{signs} signs of life in 6 s of a 3 s session");
    ensure!(looks < 100, "{looks} looks at keys that are watched");
    ensure!(guards.iter().all(|guard| guard.is_held()), "some were lost");
    Ok(())
}

async fn a_busy_try_writes_nothing(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let (one, two) = (keeper(&server, LASTING).await?, keeper(&server, LASTING).await?);
    // A longer name is another lock, although its key begins the same.
    let _nested = one.lock("tried/nested").ttl(LONG).acquire().await?;
    let held = one.lock("tried").ttl(LONG).acquire().await?;
    two.lock("warm").acquire().await?.release().await?;
    let puts = figure(&server, "etcd_debugging_mvcc_put_total")?;
    for _ in 0..20 {
        ensure!(two.lock("tried").try_acquire().await?.is_none(), "it was taken twice");
        ensure!(two.rw_lock("tried").read().try_acquire().await?.is_none(), "read beside a lock");
    }
    ensure!(figure(&server, "etcd_debugging_mvcc_put_total")? == puts, "a busy try wrote");
    held.release().await?;
    two.lock("tried").ttl(LONG).try_acquire().await?.context("it is free")?.release().await?;
    two.lock("tried").ttl(LONG).acquire().await?.release().await?;
    Ok(())
}

async fn several_names_are_one_transaction(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let (one, two) = (keeper(&server, LASTING).await?, keeper(&server, LASTING).await?);
    one.lock("warm").acquire().await?.release().await?;
    two.lock("warm").acquire().await?.release().await?;
    let names: Vec<String> = (0..20).map(|number| format!("together/{number:02}")).collect();
    let written = requests(&server, "Txn", "KV")?;
    let all = one.multi(&names).ttl(LONG).acquire().await?;
    ensure!(requests(&server, "Txn", "KV")? == written + 1, "it took more than one transaction");
    ensure!(names.iter().all(|name| all.token(name) == all.token(&names[0])), "not one revision");
    let puts = figure(&server, "etcd_debugging_mvcc_put_total")?;
    for _ in 0..5 {
        let overlapping = two.multi(["a", "b", "together/19"]).ttl(LONG);
        ensure!(overlapping.try_acquire().await?.is_none(), "one of them is held");
    }
    ensure!(figure(&server, "etcd_debugging_mvcc_put_total")? == puts, "a busy try wrote");
    // One who waits for all of them waits in each queue in turn.
    let multi = two.multi(&names).ttl(LONG);
    let next = tokio::spawn(async move { multi.acquire_within(crate::PATIENT).await });
    queue_of(&one, "together/00", 1).await;
    all.release().await?;
    next.await??.release().await?;
    Ok(())
}
