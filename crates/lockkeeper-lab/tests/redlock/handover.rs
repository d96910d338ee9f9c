//! A name that passes from claim to claim of one keeper: what the servers have of it, and who else gets in.

use super::stage::{CALM, Five, PATIENT, TTL, held};
use anyhow::{Context, Result, ensure};
use lockkeeper::backend::{Release, Standing, Ticket};
use lockkeeper::{Guard, Keeper, LossReason, Mode};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::{Lab, Server};
use lockkeeper_lab::trials::eventually;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

cases!(
    every_server_hears_who_has_it,
    a_ticket_is_of_the_claim_that_has_it,
    breaking_it_takes_it_from_the_claim_that_has_it,
    other_keepers_and_other_libraries_get_in,
    claims_exclude_while_servers_fail,
);

/// A claim of the keeper that has `a` from another; and the one before, which is over.
async fn handed(keeper: &Keeper) -> Result<(Guard, u64)> {
    for _ in 0..50 {
        let first = held(keeper).await?;
        let token = first.token().context("a token")?.get();
        let waits = keeper.lock("a").ttl(TTL).note("next");
        let next = tokio::spawn(async move { waits.acquire_within(PATIENT).await });
        tokio::time::sleep(Duration::from_millis(1)).await;
        first.release().await?;
        let next = next.await??;
        if next.token().map(|it| it.get()) == Some(token + 1) {
            return Ok((next, token));
        }
        // The machine was busy for longer than a name is handed over for.
        next.release().await?;
    }
    anyhow::bail!("unknown: nothing was handed over")
}

fn value(server: &Server) -> Result<String> {
    let value = server.redis()?.ask(&["GET", "a"])?;
    Ok(value.text().unwrap_or_default().to_owned())
}

async fn told(five: &Five, token: u64) -> Vec<String> {
    let all = async || {
        let values = five.servers.iter().map(value).collect::<Result<Vec<_>>>()?;
        let known = |value: &String| value.split(' ').nth(1) == Some(&token.to_string());
        Ok(values.iter().all(known).then_some(values))
    };
    eventually("all servers are told", all).await
}

async fn every_server_hears_who_has_it(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let (one, two) = (five.keeper(CALM).await?, five.keeper(CALM).await?);
    let rslock = rslock::LockManager::new(five.servers.iter().map(Server::url).collect());
    let (guard, before) = handed(&one).await?;
    let values = told(&five, before + 1).await;
    ensure!(values.iter().all(|value| *value == values[0]), "{values:?}");
    let words: Vec<_> = values[0].split(' ').collect();
    ensure!(words[4] == "next", "{words:?}");
    ensure!(words[5].starts_with("%=") && words[5][2..] != *words[0], "{words:?}");
    let view = two.show("a").await?;
    ensure!(view.holders.len() == 1 && view.holders[0].token == guard.token(), "{view:?}");
    ensure!(two.lock("a").try_acquire().await?.is_none(), "two hold it");
    ensure!(rslock.lock("a", PATIENT).await.is_err(), "two hold it");
    // Kept by renewals, as any other.
    tokio::time::sleep(TTL * 2).await;
    ensure!(guard.is_held(), "{:?}", guard.lost_reason());
    guard.release().await?;
    ensure!(one.close(PATIENT).await, "something was left undone");
    for server in &five.servers {
        let count = server.redis()?.ask(&["DBSIZE"])?.number();
        ensure!(count == Some(1), "{count:?} keys, where one for tokens is all");
    }
    Ok(())
}

async fn a_ticket_is_of_the_claim_that_has_it(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let keeper = five.keeper(CALM).await?;
    let elsewhere = lockkeeper::open(&five.url(CALM)).await?;
    let lease = |id: &str, guard: &Guard| {
        let ticket = Ticket::new(guard.name().clone(), Mode::Exclusive, id.parse()?, TTL);
        elsewhere.lease_of(&ticket).context("portable")
    };
    let (guard, before) = handed(&keeper).await?;
    let value = told(&five, before + 1).await.swap_remove(0);
    let first = value.rsplit_once("%=").context("it passed on")?.1;
    let mut old = lease(first, &guard)?;
    let standing = old.renew().await?;
    ensure!(matches!(standing, Standing::Lost(_)), "a claim that is over was {standing:?}");
    ensure!(old.release(&Release::now()).await.is_err(), "there was nothing to give back");
    ensure!(five.taken("a")? == 5, "the claim of another was given back");
    let mut new = lease(&value[..32], &guard)?;
    let begin = Instant::now();
    while begin.elapsed() < TTL * 2 {
        tokio::time::sleep(TTL / 8).await;
        let standing = new.renew().await?;
        ensure!(!matches!(standing, Standing::Lost(_)), "{standing:?}");
        ensure!(guard.is_held(), "{:?}", guard.lost_reason());
    }
    new.release(&Release::now()).await?;
    eventually("none has it", async || Ok((five.taken("a")? == 0).then_some(()))).await;
    guard.lost().await;
    Ok(())
}

/// Also where servers were not told, which know it by the claim before.
async fn breaking_it_takes_it_from_the_claim_that_has_it(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let (one, two) = (five.keeper(CALM).await?, five.keeper(CALM).await?);
    let (guard, before) = handed(&one).await?;
    told(&five, before + 1).await;
    let token = guard.token().context("a token")?;
    two.break_hold("a", token, "enough").await?;
    ensure!(five.taken("a")? == 0, "it is there still");
    guard.lost().await;
    let reason = guard.lost_reason();
    let told =
        matches!(&reason, Some(LossReason::Broken { reason }) if reason.starts_with("enough"));
    ensure!(told, "{reason:?}");
    held(&two).await?.release().await?;
    Ok(())
}

/// Ten tasks of one keeper that want it all the time do not keep it for themselves.
async fn other_keepers_and_other_libraries_get_in(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let rslock = rslock::LockManager::new(five.servers.iter().map(Server::url).collect());
    let (one, two) = (five.keeper(CALM).await?, five.keeper(CALM).await?);
    let stop = Arc::new(AtomicBool::new(false));
    let crowd = Crowd::default();
    let tasks: Vec<_> = (0..10).map(|_| crowd.task(&one, &stop)).collect();
    for _ in 0..5 {
        let waits = two.lock("a").ttl(TTL);
        waits.acquire_within(PATIENT).await?.release().await?;
    }
    let begin = Instant::now();
    let theirs = loop {
        match rslock.lock("a", TTL).await {
            Ok(lock) => break lock,
            Err(error) => ensure!(begin.elapsed() < PATIENT, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(7)).await;
    };
    rslock.unlock(&theirs).await;
    // However soon they got in: it was among those who pass it on all the time.
    eventually("it passes on", async || Ok(crowd.has_seen(100).ok())).await;
    stop.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// Tasks that check that they are alone, and that tokens grow.
#[derive(Default, Clone)]
struct Crowd {
    inside: Arc<AtomicUsize>,
    last: Arc<AtomicU64>,
    /// How often the name came from another claim of the keeper.
    passed: Arc<AtomicUsize>,
}

impl Crowd {
    fn task(&self, keeper: &Keeper, stop: &Arc<AtomicBool>) -> tokio::task::JoinHandle<Result<()>> {
        let (crowd, keeper, stop) = (self.clone(), keeper.clone(), stop.clone());
        tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                // While too few servers are there, there is none to be had.
                let guard = match keeper.lock("a").ttl(TTL).acquire_within(PATIENT).await {
                    Ok(guard) => guard,
                    Err(error) if error.is_retryable() => continue,
                    Err(error) => return Err(error.into()),
                };
                crowd.holds(&guard).await?;
                guard.release().await.ok();
            }
            Ok(())
        })
    }

    /// What a holder sees for as long as it may believe that it is one.
    async fn holds(&self, guard: &Guard) -> Result<()> {
        let token = guard.token().context("a token")?.get();
        let others = self.inside.fetch_add(1, Ordering::SeqCst);
        let last = self.last.swap(token, Ordering::SeqCst);
        let alone = guard.is_held();
        ensure!(others == 0 || !alone, "{others} others are inside");
        ensure!(token > last || !alone, "{token} came after {last}");
        self.passed.fetch_add(usize::from(token == last + 1), Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    fn has_seen(&self, least: usize) -> Result<()> {
        let passed = self.passed.load(Ordering::SeqCst);
        ensure!(passed >= least, "unknown: the name passed on {passed} times");
        Ok(())
    }
}

/// One server after another is paused, killed or emptied while three keepers pass the name on among their
/// own tasks, and to one another.
async fn claims_exclude_while_servers_fail(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    // Servers that forgot do not vote for as long as a claim lasts.
    tokio::time::sleep(TTL).await;
    let (stop, crowd) = (Arc::new(AtomicBool::new(false)), Crowd::default());
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let keeper = five.keeper("min_uptime=2s").await?;
        tasks.extend((0..4).map(|_| crowd.task(&keeper, &stop)));
    }
    for round in 0..9 {
        let server = &five.servers[round % 5];
        let before = crowd.passed.load(Ordering::SeqCst);
        match round % 3 {
            0 => server.pause()?,
            1 => server.kill()?,
            _ => server.restart_empty()?,
        }
        tokio::time::sleep(TTL / 2).await;
        let passed = crowd.passed.load(Ordering::SeqCst) - before;
        ensure!(passed > 10, "unknown: {passed} hand-overs while a server was away");
        match round % 3 {
            0 => server.resume()?,
            1 => server.restart()?,
            _ => {}
        }
        // Long enough for it to vote again.
        tokio::time::sleep(TTL * 3 / 2).await;
    }
    stop.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await??;
    }
    crowd.has_seen(300)
}
