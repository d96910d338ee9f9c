//! What `set-nx-px` leaves in the store, and what it makes of surprises.

use super::proxy::Proxy;
use super::{Case, LONG, PATIENT, Table};
use anyhow::{Context, Result, ensure};
use lockkeeper::blocking::connect;
use lockkeeper::{ErrorKind, LossReason};
use lockkeeper_lab::server::wire::resp::Resp;
use std::thread::sleep;
use std::time::Duration;

pub(crate) const CASES: &[Case] = &[
    ("one_key_of_that_name_has_the_claim", one_key_of_that_name_has_the_claim),
    ("to_take_it_is_one_command", to_take_it_is_one_command),
    ("one_sent_twice_knows_its_own", one_sent_twice_knows_its_own),
    ("a_key_that_is_no_lock_is_left_alone", a_key_that_is_no_lock_is_left_alone),
    ("one_whose_key_became_something_else_lost_it", one_whose_key_became_something_else_lost_it),
    ("what_lingers_is_nobodys", what_lingers_is_nobodys),
    ("a_prefix_goes_in_front", a_prefix_goes_in_front),
    ("what_it_has_no_use_for_is_refused", what_it_has_no_use_for_is_refused),
];

fn one_key_of_that_name_has_the_claim(table: &Table) -> Result<()> {
    let guard = table.keeper()?.lock(&table.lock).ttl(LONG).acquire()?;
    let value = table.value()?.context("a string")?;
    ensure!(value.len() == 32 && value.chars().all(|c| c.is_ascii_hexdigit()), "{value:?}");
    let left = table.lives_for()?;
    ensure!((1..=60_000).contains(&left), "it lives for {left} ms");
    guard.release()?;
    ensure!(table.value()?.is_none(), "the key is still there");
    Ok(())
}

/// On a server of its own, which counts the commands of nobody else.
fn to_take_it_is_one_command(table: &Table) -> Result<()> {
    let lab = lockkeeper_lab::server::Lab::open()?;
    let redis = lab.redis().start()?;
    let keeper = table.keeper_at(redis.port())?;
    let mut by_hand = Resp::connect(redis.port())?;
    by_hand.ask(&["CONFIG", "RESETSTAT"])?;
    let guard = keeper.lock(&table.lock).ttl(LONG).acquire()?;
    let counts = by_hand.info("commandstats")?;
    let commands: Vec<_> = counts.lines().filter_map(|line| line.split(',').next()).collect();
    ensure!(commands.contains(&"cmdstat_set:calls=1"), "{commands:?}");
    let others = ["cmdstat_eval", "cmdstat_get:", "cmdstat_pexpire"];
    ensure!(!others.iter().any(|other| counts.contains(other)), "{commands:?}");
    Ok(guard.release()?)
}

fn one_sent_twice_knows_its_own(table: &Table) -> Result<()> {
    let proxy = Proxy::to(table.port)?;
    let keeper = table.keeper_at(proxy.port)?;
    proxy.lose_answer_to("\r\nNX\r\n");
    let guard = keeper.lock(&table.lock).ttl(LONG).try_acquire()?;
    proxy.applied()?;
    let guard = guard.context("it was kept out by itself")?;
    ensure!(guard.is_held(), "{:?}", guard.lost_reason());
    ensure!(table.keeper()?.lock(&table.lock).try_acquire()?.is_none(), "taken a second time");
    guard.release()?;
    ensure!(table.value()?.is_none(), "the key is still there");
    Ok(())
}

fn a_key_that_is_no_lock_is_left_alone(table: &Table) -> Result<()> {
    table.by_hand()?.ask(&["HSET", &table.lock, "field", "value"])?;
    let keeper = table.keeper()?;
    let outcome = keeper.lock(&table.lock).ttl(LONG).try_acquire();
    let error = outcome.err().context("it looks like a lock")?;
    ensure!(error.kind() == ErrorKind::Store, "{error:?}");
    ensure!(error.to_string().contains(&*table.lock), "it does not say which: {error}");
    // What may have been left is withdrawn in the background.
    ensure!(wait_for(&keeper), "the withdrawal goes on and on");
    let left = table.by_hand()?.ask(&["HGET", &table.lock, "field"])?;
    ensure!(left.text() == Some("value"), "{left:?} is left of it");
    Ok(())
}

fn wait_for(keeper: &lockkeeper::blocking::Keeper) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.is_ok_and(|runtime| runtime.block_on(keeper.as_async().close(PATIENT)))
}

fn one_whose_key_became_something_else_lost_it(table: &Table) -> Result<()> {
    let keeper = table.keeper()?;
    let guard = keeper.lock(&table.lock).ttl(Duration::from_secs(3)).acquire()?;
    table.by_hand()?.ask(&["DEL", &table.lock])?;
    table.by_hand()?.ask(&["HSET", &table.lock, "field", "value"])?;
    let lost = || guard.lost_reason();
    for _ in 0..200 {
        if lost().is_some() {
            break;
        }
        sleep(Duration::from_millis(20));
    }
    ensure!(lost() == Some(LossReason::Gone), "{:?}", lost());
    let error = guard.release().err().context("it was released")?;
    ensure!(error.kind() == ErrorKind::Lost, "{error:?}");
    let left = table.by_hand()?.ask(&["HGET", &table.lock, "field"])?;
    ensure!(left.text() == Some("value"), "{left:?} is left of it");
    Ok(())
}

fn what_lingers_is_nobodys(table: &Table) -> Result<()> {
    let least = Duration::from_secs(30);
    let guard = table.keeper()?.lock(&table.lock).ttl(LONG).min_hold(least).acquire()?;
    let claim = table.value()?.context("a string")?;
    guard.release()?;
    let value = table.value()?.context("it did not linger")?;
    ensure!(value != claim, "the claim could still be renewed");
    let left = table.lives_for()?;
    ensure!((1..=30_000).contains(&left), "it lives for {left} ms");
    ensure!(table.keeper()?.lock(&table.lock).try_acquire()?.is_none(), "taken a second time");
    Ok(())
}

fn a_prefix_goes_in_front(table: &Table) -> Result<()> {
    let keeper = connect(&format!("{}&prefix=locks:", table.url(table.port)))?;
    let guard = keeper.lock(&table.lock).ttl(LONG).acquire()?;
    let key = format!("locks:{}", table.lock);
    ensure!(table.by_hand()?.ask(&["GET", &key])?.text().is_some(), "no key {key:?}");
    ensure!(table.value()?.is_none(), "a key without the prefix");
    Ok(guard.release()?)
}

fn what_it_has_no_use_for_is_refused(table: &Table) -> Result<()> {
    let refused = |options: &str| {
        let url = format!("redis://127.0.0.1:{}?{options}", table.port);
        connect(&url).err().context("it was opened")
    };
    for (option, value) in [("barging", "true"), ("replicas", "1")] {
        let error = refused(&format!("recipe=set-nx-px&{option}={value}"))?;
        ensure!(error.kind() == ErrorKind::Config, "{error:?}");
        ensure!(error.to_string().contains(&format!("no option {option:?}")), "{error}");
    }
    let error = refused("recipe=set-nx")?;
    for recipe in ["queue", "set-nx-px", "setnx-expire", "getset"] {
        ensure!(error.to_string().contains(recipe), "{recipe} is not listed: {error}");
    }
    Ok(())
}
