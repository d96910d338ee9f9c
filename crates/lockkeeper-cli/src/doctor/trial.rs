//! Takes a lock, renews it, lists it and gives it back: what this user may do, found out by doing it.

use super::Check;
use lockkeeper::event::{Event, EventKind, Events};
use lockkeeper::{ErrorKind, Keeper, Result};
use std::time::Duration;
use tokio::time::timeout;

/// The same for everyone, so that nothing piles up in stores that remember the names of locks.
const NAME: &str = "lockkeeper/doctor";
/// Short, so that the first renewal comes soon; and not so short that a busy machine loses it.
const TTL: Duration = Duration::from_secs(3);
/// How long another doctor is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn access(keeper: &Keeper) -> Check {
    match attempt(keeper).await {
        Ok(done) => Check::fine("access", format!("{} {NAME:?}", list(&done))),
        Err((done, error)) if error.kind() == ErrorKind::TimedOut => Check::warning(
            "access",
            format!("{NAME:?} could not be tried: {error}{}", after(&done)),
            "another doctor may be at it: try again",
        ),
        Err((done, error)) if error.kind() == ErrorKind::Unavailable => Check::problem(
            "access",
            format!("{error}{}", after(&done)),
            "see what else was found, and that the store takes writes",
        ),
        Err((done, error)) => Check::problem(
            "access",
            format!("{error}{}", after(&done)),
            "see the rights that locks need in the documentation of this store",
        ),
    }
}

type Done = Vec<&'static str>;

/// What worked; and what did not.
async fn attempt(keeper: &Keeper) -> Result<Done, (Done, lockkeeper::Error)> {
    let can = keeper.capability();
    let ttl = TTL.max(can.shortest_ttl);
    let mut events = keeper.events();
    let mut done = Vec::new();
    let lock = keeper.lock(NAME).ttl(ttl).note("lockkeeper doctor");
    let guard = lock.acquire_within(PATIENCE).await.map_err(|error| (Vec::new(), error))?;
    done.push("locked");
    // Twice the ttl: a renewal that comes later is of no use to anybody.
    let renewed = timeout(ttl * 2, renewal(&mut events)).await;
    let listed = match can.inspects {
        true => keeper.list_page(NAME, None, 100).await.map(Some),
        false => Ok(None),
    };
    let lost = guard.lost_reason();
    // First of all it is given back, whatever else went wrong.
    let released = guard.release().await;
    match (renewed, lost) {
        (_, Some(reason)) => return Err((done, reason.to_error())),
        (Ok(true), None) => done.push("renewed"),
        // A lock that lives in a session is kept by the session.
        _ => {}
    }
    match listed {
        Ok(Some(page)) if page.locks.iter().any(|view| view.name.as_str() == NAME) => {
            done.push("listed");
        }
        Ok(Some(_)) => {
            let message = "the lock was held, and missing in the list of locks";
            return Err((done, lockkeeper::Error::new(ErrorKind::Store, message)));
        }
        Ok(None) => {}
        Err(error) => return Err((done, error)),
    }
    match released {
        Ok(()) => done.push("released"),
        Err(error) => return Err((done, error)),
    }
    Ok(done)
}

/// Whether the lock was renewed; not if it was lost before that.
async fn renewal(events: &mut Events) -> bool {
    while let Some(Event { kind, name, .. }) = events.next().await {
        match kind {
            _ if name.as_str() != NAME => {}
            EventKind::Renewed => return true,
            EventKind::Lost(_) => return false,
            _ => {}
        }
    }
    false
}

fn list(done: &[&str]) -> String {
    match done {
        [] => "nothing was done with".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn after(done: &[&str]) -> String {
    if done.is_empty() { String::new() } else { format!(" (after it was {})", list(done)) }
}
