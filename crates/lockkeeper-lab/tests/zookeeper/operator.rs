//! What people and other programs do to the nodes.

use crate::raw::Raw;
use crate::tap::Tap;
use crate::{LONG, PATIENT, cases, eventually, keeper, proxy};
use anyhow::{Context, Result, ensure};
use lockkeeper::backend::Name;
use lockkeeper::{ErrorKind, Keeper, LossReason};
use lockkeeper_lab::proxy::{Direction, Flow};
use lockkeeper_lab::server::Lab;
use std::time::{Duration, Instant};

cases![
    a_node_deleted_by_hand_is_a_loss_at_once,
    a_waiter_whose_node_was_deleted_queues_again,
    a_lock_whose_parent_was_removed_can_be_taken,
    claims_of_another_layout_are_reported,
    recipes_do_not_overlook_each_other,
    a_late_release_spares_the_next_holder,
    a_try_at_what_is_held_writes_nothing,
    the_node_says_how_often_it_was_entered,
    a_count_is_not_written_to_the_node_of_the_next,
    the_keys_of_a_lock_are_its_nodes,
    to_tell_who_holds_it_no_waiter_is_read,
];

async fn a_node_deleted_by_hand_is_a_loss_at_once(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let one = keeper(&format!("{}/l", server.url()), "session=10s").await?;
    let guard = one.lock("n").ttl(LONG).acquire().await?;
    let mut raw = Raw::connect(&server.address())?;
    // Later than the first look at it, so that it is by a watch.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = Instant::now();
    let node = raw.children("/l/n")?.remove(0);
    raw.delete(&format!("/l/n/{node}"))?;
    tokio::time::timeout(PATIENT, guard.lost()).await?;
    // The first renewal would come after a third of five seconds.
    ensure!(before.elapsed() < Duration::from_secs(1), "told after {:?}", before.elapsed());
    ensure!(guard.lost_reason() == Some(LossReason::Gone), "{:?}", guard.lost_reason());
    Ok(())
}

async fn a_waiter_whose_node_was_deleted_queues_again(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let one = keeper(&format!("{}/l", server.url()), "session=10s").await?;
    let guard = one.lock("n").ttl(LONG).acquire().await?;
    let lock = one.lock("n").ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    crate::queue_of(&one, "n", 1).await?;
    let mut raw = Raw::connect(&server.address())?;
    let mut nodes = raw.children("/l/n")?;
    nodes.sort_by_key(|node| node[node.len() - 10..].to_owned());
    raw.delete(&format!("/l/n/{}", nodes[1]))?;
    guard.release().await?;
    waiter.await??.release().await?;
    Ok(())
}

async fn a_lock_whose_parent_was_removed_can_be_taken(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let one = keeper(&format!("{}/a/b", server.url()), "session=10s").await?;
    let mut raw = Raw::connect(&server.address())?;
    let mut last = None;
    for _ in 0..3 {
        let guard = one.lock("n").ttl(LONG).acquire().await?;
        ensure!(guard.token() > last, "{:?} came after {last:?}", guard.token());
        last = guard.token();
        guard.release().await?;
        for node in ["/a/b/n", "/a/b", "/a"] {
            raw.delete(node)?;
        }
    }
    Ok(())
}

async fn claims_of_another_layout_are_reported(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let mut raw = Raw::connect(&server.address())?;
    raw.create("/l", false)?;
    let curator = keeper(&format!("{}/l", server.url()), "session=10s").await?;
    let kazoo = keeper(&format!("{}/l", server.url()), "session=10s&layout=kazoo").await?;
    for (name, child, mistaken, right) in [
        ("k", "0123456789abcdef0123456789abcdef__lock__0000000000", &curator, &kazoo),
        ("c", "_c_658e40f9-714a-4667-8607-f50059b5ee9d-lock-0000000000", &kazoo, &curator),
    ] {
        raw.create(&format!("/l/{name}"), false)?;
        raw.create(&format!("/l/{name}/{child}"), true)?;
        for outcome in [
            mistaken.lock(name).acquire_within(PATIENT).await.map(drop),
            mistaken.lock(name).try_acquire().await.map(drop),
        ] {
            let error = outcome.err().map(|error| (error.kind(), error.to_string()));
            let told =
                matches!(&error, Some((ErrorKind::Config, text)) if text.contains("layout="));
            ensure!(told, "{name}: {error:?}");
        }
        ensure!(right.lock(name).try_acquire().await?.is_none(), "{name} is not held");
        let left = async || raw.children(&format!("/l/{name}")).is_ok_and(|nodes| nodes.len() == 1);
        eventually("nothing of the refused is left", left).await?;
    }
    Ok(())
}

async fn recipes_do_not_overlook_each_other(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let fair = keeper(&server.url(), "session=10s").await?;
    let single = keeper(&server.url(), "session=10s&recipe=ephemeral").await?;
    for (one, two) in [(&fair, &single), (&single, &fair)] {
        let guard = one.lock("n").ttl(LONG).acquire().await?;
        let refused = two.lock("n").try_acquire().await.err().map(|error| error.kind());
        ensure!(refused == Some(ErrorKind::Config), "{refused:?}");
        guard.release().await?;
    }
    Ok(())
}

async fn a_late_release_spares_the_next_holder(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let options = "session=10s&recipe=ephemeral";
    let one = keeper(&format!("{}/l", server.url()), options).await?;
    let two = keeper(&format!("{}/l", server.url()), options).await?;
    let mut raw = Raw::connect(&server.address())?;
    for _ in 0..10 {
        let first = one.lock("n").ttl(LONG).acquire().await?;
        raw.delete("/l/n/lock")?;
        let second = two.lock("n").ttl(LONG).try_acquire().await?;
        ensure!(second.is_some(), "what was deleted is not free");
        // The first does not know yet, or does: either way the node is not its own.
        let _ = first.release().await;
        ensure!(raw.children("/l/n")? == ["lock"], "a late release took it from the next");
        drop(second);
        ensure!(two.close(PATIENT).await, "it was not given back");
    }
    Ok(())
}

async fn a_try_at_what_is_held_writes_nothing(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    for recipe in ["fair", "barging", "ephemeral"] {
        let options = format!("session=20s&recipe={recipe}");
        let one = keeper(&format!("{}/{recipe}", server.url()), &options).await?;
        let two = keeper(&format!("{}/{recipe}", server.url()), &options).await?;
        let guard = one.lock("n").ttl(LONG).acquire().await?;
        let zxid = || -> Result<Option<String>> {
            let text = crate::raw::word(&server.address(), "srvr")?;
            Ok(text.lines().find(|line| line.starts_with("Zxid")).map(str::to_owned))
        };
        let before = zxid()?;
        for _ in 0..20 {
            ensure!(two.lock("n").try_acquire().await?.is_none(), "it is not held");
        }
        ensure!(before.is_some() && zxid()? == before, "{recipe}: a try wrote something");
        guard.release().await?;
    }
    Ok(())
}

async fn the_node_says_how_often_it_was_entered(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    for recipe in ["fair", "ephemeral"] {
        let tap = Tap::before(&server.address())?;
        let options = format!("session=20s&recipe={recipe}");
        let one = keeper(&format!("{}/{recipe}", tap.url()), &options).await?;
        let two = keeper(&format!("{}/{recipe}", server.url()), &options).await?;
        let lock = one.lock("n").ttl(LONG).owner(&one.owner("me")).note("why");
        let mut guards = vec![lock.acquire().await?];
        let waiting = two.lock("n").ttl(LONG);
        let waiter = tokio::spawn(async move { waiting.acquire_within(PATIENT).await });
        let shown = async |count: usize| {
            let view = two.show("n").await;
            view.is_ok_and(|v| v.holders.len() == 1 && v.holders[0].count == count)
        };
        eventually("one guard", async || shown(1).await).await?;
        for count in [2, 3, 4] {
            guards.push(lock.acquire().await?);
            eventually("one guard more", async || shown(count).await).await?;
        }
        // Entered and left at once, which is not worth a word.
        let writes = tap.writes();
        for _ in 0..20 {
            let brief = lock.acquire().await?;
            tokio::time::sleep(Duration::from_millis(2)).await;
            brief.release().await?;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        ensure!(tap.writes() <= writes + 2, "{} times written", tap.writes() - writes);
        while guards.len() > 1 {
            drop(guards.pop());
            let count = guards.len();
            eventually("one guard less", async || shown(count).await).await?;
        }
        ensure!(guards[0].is_held() && !waiter.is_finished(), "a word of it made it another's");
        drop(guards);
        waiter.await??.release().await?;
    }
    Ok(())
}

async fn a_count_is_not_written_to_the_node_of_the_next(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let options = "session=20s&recipe=ephemeral";
    let proxy = proxy(&server, 31)?;
    let one = keeper(&format!("zookeeper://{}/l", proxy.address()), options).await?;
    let two = keeper(&format!("{}/l", server.url()), options).await?;
    let mut raw = Raw::connect(&server.address())?;
    let lock = one.lock("n").ttl(LONG).owner(&one.owner("me"));
    let outer = lock.acquire().await?;
    // It does not hear that it lost it before the count is written.
    proxy.set(Direction::ToClient, Flow::Hold);
    let inner = lock.acquire().await?;
    raw.delete("/l/n/lock")?;
    let next = two.lock("n").ttl(LONG).note("next").try_acquire().await?;
    let next = next.context("what was deleted is not free")?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let view = two.show("n").await?;
    let same = view.holders.len() == 1 && view.holders[0].note == "next";
    ensure!(same && view.holders[0].count == 1, "{view:?}");
    proxy.heal();
    drop((outer, inner));
    next.release().await?;
    Ok(())
}

async fn the_keys_of_a_lock_are_its_nodes(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let mut raw = Raw::connect(&server.address())?;
    let name = Name::new("a/b")?;
    // With a path of its own, and at the top of the tree.
    for (tail, lock) in [("/top/fair?", "/top/fair/a%2Fb"), ("/?", "/a%2Fb")] {
        let store = lockkeeper::open(&format!("{}{tail}session=20s", server.url())).await?;
        let guard = Keeper::new(store.clone())?.lock("a/b").ttl(LONG).acquire().await?;
        let keys = store.keys(&name);
        ensure!(keys == [lock], "{keys:?}");
        ensure!(raw.children(lock)?.len() == 1, "{lock} is not where the claim is");
        guard.release().await?;
    }
    let url = format!("{}/top/ephemeral?session=20s&recipe=ephemeral", server.url());
    let store = lockkeeper::open(&url).await?;
    let guard = Keeper::new(store.clone())?.lock("a/b").ttl(LONG).acquire().await?;
    let keys = store.keys(&name);
    let lock = "/top/ephemeral/a%2Fb";
    ensure!(keys == [format!("{lock}/lock"), lock.to_owned()], "{keys:?}");
    let record = raw.read(&keys[0])?;
    ensure!(record.contains("\nclaim "), "{record:?}");
    guard.release().await?;
    Ok(())
}

async fn to_tell_who_holds_it_no_waiter_is_read(lab: &Lab) -> Result<()> {
    const WAITERS: usize = 6;
    let server = lab.zookeeper().start()?;
    let one = keeper(&server.url(), "session=20s").await?;
    let guard = one.lock("n").ttl(LONG).note("here").acquire().await?;
    for number in 0..WAITERS {
        let lock = one.lock("n").ttl(LONG);
        tokio::spawn(async move { lock.acquire_within(PATIENT).await });
        crate::queue_of(&one, "n", number + 1).await?;
    }
    let tap = Tap::before(&server.address())?;
    let store = lockkeeper::open(&format!("{}?session=20s", tap.url())).await?;
    let inspector = store.inspector().context("no inspector")?;
    tap.clear();
    let holders = inspector.holders(&Name::new("n")?).await?;
    ensure!(holders.len() == 1 && holders[0].note == "here", "{holders:?}");
    ensure!(holders[0].token == guard.token(), "{holders:?}");
    ensure!(tap.reads() == 1, "{} nodes were read", tap.reads());
    // Not vacuous: for the whole queue all of them are.
    let view = inspector.show(&Name::new("n")?).await?;
    ensure!(view.waiters.len() == WAITERS && view.holders.len() == 1, "{view:?}");
    ensure!(tap.reads() == 1 + 1 + WAITERS, "{} nodes were read", tap.reads());
    guard.release().await?;
    Ok(())
}
