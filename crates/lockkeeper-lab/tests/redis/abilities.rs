//! What a keeper can do besides taking locks: be closed, tell its keys, notice restarts, be opened by
//! options, keep the claims of another.

use crate::{LONG, PATIENT, cases, eventually, far_keeper, keeper};
use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use lockkeeper::Keeper;
use lockkeeper::backend::redis::{RedisOptions, RedisRecipe};
use lockkeeper::backend::{Backend, Capability, Claim, Grant, Patience, Release, Standing, Ticket};
use lockkeeper_lab::server::{Lab, Server};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

cases!(
    a_closed_keeper_has_no_connections_and_can_be_used_again,
    the_keys_it_tells_are_those_in_the_server,
    an_empty_prefix_is_one,
    a_restart_is_another_incarnation,
    the_settings_of_a_client_are_enough,
    a_broken_connection_puts_every_hold_in_jeopardy_for_a_moment,
    an_adopted_claim_is_not_removed_by_the_keeper_that_made_it,
    a_ticket_that_is_dropped_leaves_the_claim_to_its_holder,
    tokens_are_microseconds_of_the_servers_clock,
);

const RECIPES: &[&str] = &["queue", "reentrant", "set-nx-px"];

async fn with_recipe(server: &Server, recipe: &str) -> Result<Keeper> {
    Ok(lockkeeper::connect(&format!("{}?recipe={recipe}", server.url())).await?)
}

fn clients(server: &Server) -> Result<usize> {
    let said = server.redis()?.ask(&["CLIENT", "LIST"])?;
    let lines = said.text().context("text")?.lines();
    Ok(lines.filter(|line| line.contains("lib-name=lockkeeper") || line.contains("resp=3")).count())
}

async fn a_closed_keeper_has_no_connections_and_can_be_used_again(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    for recipe in RECIPES {
        let keeper = with_recipe(&server, recipe).await?;
        keeper.lock("closed").ttl(LONG).acquire().await?.release().await?;
        ensure!(clients(&server)? > 0, "{recipe}: none while it is open");
        ensure!(keeper.close(PATIENT).await, "{recipe}: not closed");
        eventually("they are gone", async || Ok((clients(&server)? == 0).then_some(()))).await;
        keeper.lock("closed").ttl(LONG).acquire().await?.release().await?;
        drop(keeper);
        eventually("they are gone", async || Ok((clients(&server)? == 0).then_some(()))).await;
    }
    Ok(())
}

/// Every key that is in the server while a lock is held and waited for.
fn stored(server: &Server) -> Result<BTreeSet<String>> {
    let said = server.redis()?.ask(&["KEYS", "*"])?;
    Ok(said
        .list()
        .context("a list")?
        .iter()
        .filter_map(|key| key.text())
        .map(str::to_owned)
        .collect())
}

async fn the_keys_it_tells_are_those_in_the_server(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    for recipe in RECIPES {
        let keeper = with_recipe(&server, recipe).await?;
        let guard = keeper.lock("a{b%/c").ttl(LONG).acquire().await?;
        let lock = keeper.lock("a{b%/c").ttl(LONG);
        let waiting = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
        if *recipe == "queue" {
            crate::waiting(&keeper, "a{b%/c", 1).await;
        }
        let told: BTreeSet<String> = keeper.keys("a{b%/c")?.into_iter().collect();
        // Those of readers come and go; here none reads.
        ensure!(stored(&server)? == told, "{recipe}: {told:?} and {:?}", stored(&server)?);
        guard.release().await?;
        waiting.await??.release().await?;
        server.redis()?.ask(&["FLUSHALL"])?;
    }
    Ok(())
}

async fn an_empty_prefix_is_one(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let keeper = lockkeeper::connect(&format!("{}?prefix=", server.url())).await?;
    let guard = keeper.lock("bare").ttl(LONG).acquire().await?;
    ensure!(stored(&server)? == BTreeSet::from(["{bare}".to_owned()]), "{:?}", stored(&server)?);
    ensure!(keeper.list("").await?.len() == 1, "it is not listed");
    guard.release().await?;
    Ok(())
}

async fn a_restart_is_another_incarnation(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    for recipe in RECIPES {
        let url = format!("{}?recipe={recipe}", server.url());
        let backend = lockkeeper::open(&url).await?;
        let before = backend.incarnation().await?;
        ensure!(before.is_some() && backend.incarnation().await? == before, "{recipe}: {before:?}");
        server.kill()?;
        server.restart()?;
        let after = backend.incarnation().await?;
        ensure!(after.is_some() && after != before, "{recipe}: {before:?}, then {after:?}");
    }
    Ok(())
}

async fn the_settings_of_a_client_are_enough(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    server.redis()?.ask(&["ACL", "SETUSER", "ann", "on", ">secret", "~*", "&*", "+@all"])?;
    let url = format!("redis://ann:secret@{}/3", server.address());
    let client = redis::Client::open(url)?;
    let mut options = RedisOptions::from_client(&client);
    options.recipe = RedisRecipe::SetNxPx;
    ensure!(!format!("{options:?}").contains("secret"), "{options:?}");
    let keeper = lockkeeper::connect_with(options).await?;
    let guard = keeper.lock("theirs").ttl(LONG).acquire().await?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let found: Option<String> =
        redis::cmd("GET").arg("theirs").query_async(&mut connection).await?;
    ensure!(found.is_some(), "not in the client's database");
    let listed = server.redis()?.ask(&["CLIENT", "LIST"])?;
    let listed = listed.text().context("text")?.to_owned();
    let is_ours = |line: &str| line.contains("user=ann") && line.contains("resp=3");
    ensure!(listed.lines().any(is_ours), "{listed}");
    guard.release().await?;
    Ok(())
}

async fn a_broken_connection_puts_every_hold_in_jeopardy_for_a_moment(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (keeper, proxy) = far_keeper(&server).await?;
    let guard = keeper.lock("far").ttl(LONG).acquire().await?;
    ensure!(!guard.is_in_jeopardy(), "in jeopardy from the start");
    // Nobody sends anything now: it is the connection for messages that tells.
    proxy.control().refuse(true);
    proxy.control().reset();
    let cut = Instant::now();
    let jeopardy = async || Ok(guard.is_in_jeopardy().then_some(()));
    eventually("the hold is in jeopardy", jeopardy).await;
    // A third of the ttl later the next renewal would have found out as well.
    ensure!(cut.elapsed() < LONG / 6, "only after {:?}", cut.elapsed());
    ensure!(guard.is_held(), "it was lost at once");
    proxy.control().heal();
    let safe = async || Ok((!guard.is_in_jeopardy()).then_some(()));
    eventually("the hold is safe again", safe).await;
    ensure!(guard.is_held(), "it was lost: {:?}", guard.lost_reason());
    guard.release().await?;
    Ok(())
}

/// Remembers the ticket of the last claim that it was asked for.
#[derive(Debug)]
struct Noting {
    inner: Arc<dyn Backend>,
    ticket: Mutex<Option<Ticket>>,
}

impl fmt::Display for Noting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl Backend for Noting {
    fn capability(&self) -> Capability {
        self.inner.capability()
    }

    async fn acquire(
        &self,
        claim: &Claim,
        patience: &Patience,
    ) -> lockkeeper::Result<Option<Grant>> {
        *self.ticket.lock().expect("no panic") = Some(Ticket::of(claim));
        self.inner.acquire(claim, patience).await
    }

    async fn withdraw(&self, claim: &Claim) -> lockkeeper::Result<()> {
        self.inner.withdraw(claim).await
    }
}

/// The keeper that made the claim is alive, has detached it, and is asked again and again whether it
/// still has it: by those that wait. Only the record says that another has it now.
async fn an_adopted_claim_is_not_removed_by_the_keeper_that_made_it(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let ttl = Duration::from_secs(2);
    for shared in [false, true] {
        let inner = lockkeeper::open(&server.url()).await?;
        let noting = Arc::new(Noting { inner, ticket: Mutex::default() });
        let maker = Keeper::new(noting.clone())?;
        let other = maker.rw_lock("adopted").ttl(LONG);
        // A second holder, so that both are in the state.
        let reader = if shared { Some(other.read().acquire().await?) } else { None };
        let guard = match shared {
            true => maker.rw_lock("adopted").ttl(ttl).read().acquire().await?,
            false => maker.lock("adopted").ttl(ttl).acquire().await?,
        };
        let ticket = noting.ticket.lock().expect("no panic").take().context("a ticket")?;
        let adopter = lockkeeper::open(&server.url()).await?;
        let mut lease = adopter.lease_of(&ticket).context("a lease")?;
        guard.detach();
        ensure!(lease.renew().await? == Standing::Held, "not kept at once");
        let waiter = keeper(&server).await?;
        let lock = waiter.lock("adopted").ttl(LONG);
        let waiting = tokio::spawn(async move { lock.acquire_within(PATIENT * 2).await });
        crate::waiting(&waiter, "adopted", 1).await;
        // Past the time for which a detached claim is left alone, and past an audit.
        for _ in 0..24 {
            tokio::time::sleep(ttl / 4).await;
            let standing = lease.renew().await?;
            ensure!(standing == Standing::Held, "shared {shared}: {standing:?}");
        }
        ensure!(!waiting.is_finished(), "shared {shared}: two hold it");
        lease.release(&Release::now()).await?;
        if let Some(reader) = reader {
            reader.release().await?;
        }
        waiting.await??.release().await?;
    }
    Ok(())
}

/// A keeper that holds a claim may be handed the claim's own ticket, and is done with that before the
/// claim is over. Those that wait ask it again and again whether it still has the claim.
async fn a_ticket_that_is_dropped_leaves_the_claim_to_its_holder(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let ttl = Duration::from_secs(2);
    let inner = lockkeeper::open(&server.url()).await?;
    let noting = Arc::new(Noting { inner, ticket: Mutex::default() });
    let maker = Keeper::new(noting.clone())?;
    let guard = maker.lock("twice").ttl(ttl).acquire().await?;
    let ticket = noting.ticket.lock().expect("no panic").take().context("a ticket")?;
    let mut lease = noting.inner.lease_of(&ticket).context("a lease")?;
    ensure!(lease.renew().await? == Standing::Held, "not kept at once");
    drop(lease);
    // Past the time for which a claim is left alone whose lease was dropped.
    tokio::time::sleep(ttl * 2).await;
    let waiter = keeper(&server).await?;
    let second = waiter.lock("twice").ttl(LONG).acquire_within(Duration::from_secs(15)).await;
    ensure!(second.is_err(), "the keeper took it from its own holder");
    ensure!(guard.is_held(), "it was lost: {:?}", guard.lost_reason());
    guard.release().await?;
    Ok(())
}

async fn tokens_are_microseconds_of_the_servers_clock(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    for recipe in ["queue", "reentrant"] {
        let keeper = with_recipe(&server, recipe).await?;
        let now = || -> Result<u64> {
            let said = server.redis()?.ask(&["TIME"])?;
            let said = said.list().context("a list")?;
            let part = |at: usize| said.get(at).and_then(|part| part.text()).context("a number");
            Ok(part(0)?.parse::<u64>()? * 1_000_000 + part(1)?.parse::<u64>()?)
        };
        let before = now()?;
        let guard = keeper.lock("time").ttl(LONG).acquire().await?;
        let (token, after) = (guard.token().context("a token")?.get(), now()?);
        ensure!((before..=after).contains(&token), "{recipe}: {before} {token} {after}");
        guard.release().await?;
    }
    Ok(())
}
