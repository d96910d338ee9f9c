//! Several servers: one per name.

use crate::{LONG, PATIENT, by_hand, cases, has};
use anyhow::{Context, Result, ensure};
use lockkeeper::{ErrorKind, Keeper};
use lockkeeper_lab::server::{Lab, Server};

cases!(
    names_are_spread_and_each_is_on_one_server,
    a_server_that_is_gone_costs_its_own_names_only,
    a_server_that_is_taken_out_moves_its_own_names_only,
    a_server_that_is_added_takes_some_names_and_moves_no_other,
    a_name_that_moves_can_be_held_twice_while_lists_differ,
);

const NAMES: usize = 60;

fn url<'a>(servers: impl IntoIterator<Item = &'a Server>) -> String {
    let hosts: Vec<_> = servers.into_iter().map(|server| server.address()).collect();
    format!("memcached://{}", hosts.join(","))
}

fn name(number: usize) -> String {
    format!("orders/{number}")
}

/// Which of the servers has the key of a name.
fn server_of(servers: &[Server], name: &str) -> Result<usize> {
    let mut found = Vec::new();
    for (index, server) in servers.iter().enumerate() {
        if has(server, &format!("lockkeeper:{name}"))? {
            found.push(index);
        }
    }
    ensure!(found.len() == 1, "{name} is on {found:?}");
    Ok(found[0])
}

/// The server of each name, by taking it.
async fn places(keeper: &Keeper, servers: &[Server]) -> Result<Vec<usize>> {
    let mut places = Vec::new();
    for number in 0..NAMES {
        let guard = keeper.lock(name(number)).ttl(LONG).acquire_within(PATIENT).await?;
        places.push(server_of(servers, &name(number))?);
        guard.release().await?;
    }
    Ok(places)
}

async fn names_are_spread_and_each_is_on_one_server(lab: &Lab) -> Result<()> {
    let servers = lab.memcached().start_many(3)?;
    let keeper = lockkeeper::connect(&url(&servers)).await?;
    let placed = places(&keeper, &servers).await?;
    for index in 0..3 {
        let share = placed.iter().filter(|place| **place == index).count();
        ensure!(share >= 5, "server {index} has {share} of {NAMES}");
    }
    // In another order it is the same.
    let other = lockkeeper::connect(&url(servers.iter().rev())).await?;
    ensure!(places(&other, &servers).await? == placed, "the order of the servers matters");
    // All of them are listed.
    let mut guards = Vec::new();
    for number in 0..NAMES {
        guards.push(keeper.lock(name(number)).ttl(LONG).acquire().await?);
    }
    ensure!(other.list("orders/").await?.len() == NAMES, "not all are listed");
    Ok(())
}

async fn a_server_that_is_gone_costs_its_own_names_only(lab: &Lab) -> Result<()> {
    let servers = lab.memcached().start_many(3)?;
    let before = lockkeeper::connect(&url(&servers)).await?;
    let placed = places(&before, &servers).await?;
    servers[1].kill()?;
    // Also for a keeper that connects only now.
    let after = lockkeeper::connect(&url(&servers)).await?;
    for keeper in [&before, &after] {
        for (number, place) in placed.iter().enumerate() {
            let tried = keeper.lock(name(number)).ttl(LONG).try_acquire().await;
            match (place, tried) {
                (1, Err(error)) => {
                    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
                    ensure!(error.to_string().contains(&servers[1].address()), "{error}");
                }
                (1, Ok(guard)) => anyhow::bail!("{number} was found elsewhere: {guard:?}"),
                (_, tried) => tried?.context("taken")?.release().await?,
            }
        }
    }
    servers[1].restart()?;
    ensure!(places(&after, &servers).await? == placed, "names moved");
    Ok(())
}

async fn a_server_that_is_taken_out_moves_its_own_names_only(lab: &Lab) -> Result<()> {
    let servers = lab.memcached().start_many(3)?;
    let all = places(&lockkeeper::connect(&url(&servers)).await?, &servers).await?;
    let fewer = lockkeeper::connect(&url(&servers[..2])).await?;
    let moved = places(&fewer, &servers).await?;
    for (number, (before, after)) in all.iter().zip(&moved).enumerate() {
        ensure!(*before == 2 || before == after, "{number} moved from {before} to {after}");
    }
    ensure!(all.contains(&2), "unknown: the server had no names");
    Ok(())
}

async fn a_server_that_is_added_takes_some_names_and_moves_no_other(lab: &Lab) -> Result<()> {
    let servers = lab.memcached().start_many(3)?;
    let fewer = places(&lockkeeper::connect(&url(&servers[..2])).await?, &servers).await?;
    let all = places(&lockkeeper::connect(&url(&servers)).await?, &servers).await?;
    let to_the_new = all.iter().filter(|place| **place == 2).count();
    ensure!((5..NAMES / 2).contains(&to_the_new), "{to_the_new} of {NAMES} moved");
    let stayed = fewer.iter().zip(&all).filter(|(before, after)| before == after).count();
    ensure!(stayed + to_the_new == NAMES, "others moved as well");
    Ok(())
}

/// The documentation warns of this, and says how to change the list.
async fn a_name_that_moves_can_be_held_twice_while_lists_differ(lab: &Lab) -> Result<()> {
    let servers = lab.memcached().start_many(2)?;
    let old = lockkeeper::connect(&url(&servers[..1])).await?;
    let new = lockkeeper::connect(&url(&servers)).await?;
    let mut twice = 0;
    for number in 0..NAMES {
        let first = old.lock(name(number)).ttl(LONG).acquire().await?;
        let second = new.lock(name(number)).ttl(LONG).try_acquire().await?;
        twice += usize::from(second.is_some());
        drop((first, second));
    }
    ensure!((5..NAMES - 5).contains(&twice), "{twice} of {NAMES} moved");
    ensure!(by_hand(&servers[0], "version")?.contains("VERSION"), "the server is gone");
    Ok(())
}
