//! One node of five that dies or hangs.

use super::stage::{CALM, Five, PATIENT, TTL, held};
use anyhow::{Context, Result, ensure};
use lockkeeper::backend::{Release, Standing, Ticket};
use lockkeeper::{ErrorKind, Mode};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::Lab;
use lockkeeper_lab::trials::eventually;
use std::time::{Duration, Instant};

cases!(
    one_is_killed_while_a_lock_is_held,
    one_is_paused_and_costs_no_time,
    three_are_killed_and_the_holder_is_told_in_time,
    a_clean_release_leaves_no_key,
    who_holds_is_shown_for_each_node,
    pages_show_each_lock_once_while_a_node_is_down,
    a_ticket_is_kept_beside_its_holder_and_brings_nothing_back,
);

async fn one_is_killed_while_a_lock_is_held(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let (one, two) = (five.keeper(CALM).await?, five.keeper(CALM).await?);
    let guard = held(&one).await?;
    five.servers[2].kill()?;
    tokio::time::sleep(TTL * 2).await;
    ensure!(guard.is_held(), "{:?}", guard.lost_reason());
    ensure!(two.lock("a").try_acquire().await?.is_none(), "taken twice");
    guard.release().await?;
    let next = held(&two).await?;
    five.servers[2].restart()?;
    // The node that is back gets the claim of the holder of now.
    eventually("all five have it", async || Ok((five.taken("a")? == 5).then_some(()))).await;
    next.release().await?;
    eventually("none has it", async || Ok((five.taken("a")? == 0).then_some(()))).await;
    Ok(())
}

/// A paused node keeps its connections and answers nothing: in the second it would take to find out,
/// many locks are taken and given back.
async fn one_is_paused_and_costs_no_time(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    // Nobody waits for a vote as long as that.
    let keeper = five.keeper("timeout=20s&min_uptime=0s").await?;
    held(&keeper).await?.release().await?;
    five.servers[1].pause()?;
    let begin = Instant::now();
    for _ in 0..50 {
        held(&keeper).await?.release().await?;
    }
    let guard = held(&keeper).await?;
    tokio::time::sleep(TTL * 2).await;
    ensure!(guard.is_held(), "{:?}", guard.lost_reason());
    guard.release().await?;
    ensure!(begin.elapsed() < Duration::from_secs(15), "it was waited for: {:?}", begin.elapsed());
    five.servers[1].resume()?;
    // What it was asked while it stood still is undone.
    ensure!(keeper.close(PATIENT).await, "something was left undone");
    eventually("none has it", async || Ok((five.taken("a")? == 0).then_some(()))).await;
    Ok(())
}

async fn three_are_killed_and_the_holder_is_told_in_time(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let keeper = five.keeper(CALM).await?;
    let begin = Instant::now();
    let guard = held(&keeper).await?;
    for server in &five.servers[..3] {
        server.kill()?;
    }
    let left = guard.remaining();
    guard.lost().await;
    ensure!(begin.elapsed() >= TTL / 2, "lost early");
    ensure!(!left.is_zero(), "unknown: it was lost before");
    let error = keeper.lock("b").try_acquire().await.unwrap_err();
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    ensure!(error.to_string().contains("2 of 5 nodes"), "{error}");
    for server in &five.servers[..3] {
        server.restart()?;
    }
    held(&keeper).await?.release().await?;
    Ok(())
}

async fn a_clean_release_leaves_no_key(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let keeper = five.keeper(CALM).await?;
    for number in 0..100 {
        keeper.lock(format!("n/{number}")).acquire().await?.release().await?;
    }
    ensure!(keeper.close(PATIENT).await, "something was left undone");
    for server in &five.servers {
        let keys = format!("{:?}", server.redis()?.ask(&["KEYS", "*"])?);
        ensure!(keys.matches("Text").count() <= 1 || !keys.contains("n/"), "left behind: {keys}");
        let count = server.redis()?.ask(&["DBSIZE"])?.number();
        ensure!(count == Some(1), "{count:?} keys, where one for tokens is all: {keys}");
    }
    Ok(())
}

async fn who_holds_is_shown_for_each_node(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let (one, two) = (five.keeper(CALM).await?, five.keeper(CALM).await?);
    let guard = one.lock("a").note("why").acquire().await?;
    five.servers[4].kill()?;
    five.servers[3].redis()?.ask(&["SET", "a", "somebody else"])?;
    let view = two.show("a").await?;
    ensure!(view.holders.len() == 1 && view.holders[0].token == guard.token(), "{view:?}");
    ensure!(view.nodes.len() == 5, "{view:?}");
    ensure!(view.nodes[0].holders[0].note == "why", "{view:?}");
    ensure!(view.nodes[3].holders[0].owner.id() == "somebody else", "{view:?}");
    ensure!(view.nodes[4].objection.is_some(), "{view:?}");
    guard.release().await?;
    Ok(())
}

/// Whatever nodes have it, and whichever of them do not answer.
async fn pages_show_each_lock_once_while_a_node_is_down(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let keeper = five.keeper(CALM).await?;
    let names: Vec<String> = (100..220).map(|number| format!("page/{number}")).collect();
    let _held = keeper.multi(&names).ttl(Duration::from_secs(600)).acquire().await?;
    for (number, server) in five.servers.iter().enumerate() {
        let some = names.iter().skip(number).step_by(5).map(String::as_str);
        server.redis()?.ask(&["DEL"].into_iter().chain(some).collect::<Vec<_>>())?;
    }
    for down in [None, Some(1)] {
        down.map_or(Ok(()), |it| five.servers[it].kill())?;
        let (mut shown, mut after) = (Vec::new(), None);
        loop {
            let page = keeper.list_page("page/", after.as_deref(), 7).await?;
            shown.extend(page.locks.into_iter().map(|lock| lock.name.to_string()));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        shown.sort();
        ensure!(shown == names, "with {down:?} down: {shown:?}");
    }
    five.servers[0].kill()?;
    five.servers[2].kill()?;
    // Two are left, and nobody knows what the other three have: nothing is left out in silence.
    let mut after = None;
    loop {
        match keeper.list_page("page/", after.as_deref(), 100).await {
            Ok(page) => after = Some(page.next.context("it ended, with two of five nodes")?),
            Err(error) => {
                ensure!(error.kind() == ErrorKind::Unavailable, "{error}");
                break;
            }
        }
    }
    for wrong in ["", "x", "0/0/", "/9/", "1/1/"] {
        let error = keeper.list_page("", Some(wrong), 2).await.expect_err("no page ended there");
        ensure!(error.kind() == ErrorKind::Config, "{wrong}: {error}");
    }
    Ok(())
}

/// Renewals of others must not look like clocks that jumped; and a claim that is over stays over.
async fn a_ticket_is_kept_beside_its_holder_and_brings_nothing_back(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let keeper = five.keeper(CALM).await?;
    let guard = held(&keeper).await?;
    let value = five.servers[0].redis()?.ask(&["GET", "a"])?;
    let id = value.text().and_then(|value| value.get(..32)).context("a value")?;
    let ticket = Ticket::new(guard.name().clone(), Mode::Exclusive, id.parse()?, TTL);
    let elsewhere = lockkeeper::open(&five.url(CALM)).await?;
    let mut lease = elsewhere.lease_of(&ticket).context("portable")?;
    let begin = Instant::now();
    while begin.elapsed() < TTL * 3 {
        tokio::time::sleep(TTL / 8).await;
        let standing = lease.renew().await?;
        ensure!(!matches!(standing, Standing::Lost(_)), "{standing:?}");
        ensure!(guard.is_held(), "{:?}", guard.lost_reason());
    }
    let view = keeper.show("a").await?;
    ensure!(view.holders[0].token == guard.token(), "the record was changed: {view:?}");
    guard.release().await?;
    eventually("none has it", async || Ok((five.taken("a")? == 0).then_some(()))).await;
    let standing = lease.renew().await?;
    ensure!(matches!(standing, Standing::Lost(_)), "a claim that is over was {standing:?}");
    ensure!(five.taken("a")? == 0, "a ticket took the lock");
    ensure!(lease.release(&Release::now()).await.is_err(), "there was nothing to give back");
    Ok(())
}
