//! Waits for the lock, and tells the user who holds it.

use super::held::Held;
use super::plan::Plan;
use crate::exit::Failure;
use crate::output;
use crate::text::visible;
use lockkeeper::backend::LockView;
use lockkeeper::{ErrorKind, Keeper, Lock, Mode, Multi, Owner, Result};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long we wait in silence, and how often we poll after that.
const GLANCE: Duration = Duration::from_secs(1);
/// The interval grows by a second for every this many places in the queue, up to
/// `LONGEST_GLANCE`: each poll reads the whole queue, and in a long queue every waiter polls.
const PLACES_PER_GLANCE: u32 = 16;
const LONGEST_GLANCE: Duration = Duration::from_secs(10);
/// How often we repeat the same message.
const REMINDER: Duration = Duration::from_secs(30);

/// Takes the locks that the plan names, or says why not.
///
/// Cancel safe: dropping it leaves the queue.
pub(crate) async fn take(keeper: &Keeper, plan: &Plan, owner: &Owner) -> Result<Held, Failure> {
    if plan.owner.is_some() && !keeper.capability().reentrant {
        refuse_what_is_ours(keeper, plan, owner).await?;
    }
    let taken = tokio::select! {
        taken = contend(keeper, plan, owner) => taken,
        never = tell_whom_we_wait_for(keeper, plan, owner) => never,
    };
    match taken {
        Ok(Some(held)) => Ok(held),
        Ok(None) => Err(not_free(keeper, plan, owner).await),
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            Err(Failure { code: plan.conflict_code, ..error.into() })
        }
        Err(error) => Err(error.into()),
    }
}

/// Refuses a nested run that would deadlock: it would wait for the enclosing run that holds the
/// name, and that run waits for us.
async fn refuse_what_is_ours(keeper: &Keeper, plan: &Plan, owner: &Owner) -> Result<(), Failure> {
    for name in &plan.names {
        // If the store cannot tell who holds it, we wait like any other.
        let Ok(view) = keeper.show(name.as_str()).await else { continue };
        if view.holders.iter().any(|holder| holder.owner == *owner) {
            let name = name.as_str();
            return Err(Failure::usage(format!(
                "{name:?} is held by the run that this one is within, and {keeper} lets no owner \
                 in twice: use another name, or a store that is re-entrant (see `lockkeeper \
                 recipes`)"
            )));
        }
    }
    Ok(())
}

/// Sets the same terms on a [`Lock`] or a [`Multi`].
macro_rules! with_terms {
    ($claim:expr, $plan:expr, $owner:expr) => {{
        let mut claim = $claim.ttl($plan.ttl).owner($owner).note(&$plan.note);
        if let Some(most) = $plan.max_hold {
            claim = claim.max_hold(most);
        }
        if let Some(least) = $plan.min_hold {
            claim = claim.min_hold(least);
        }
        claim
    }};
}

async fn contend(keeper: &Keeper, plan: &Plan, owner: &Owner) -> Result<Option<Held>> {
    if let [name] = &plan.names[..] {
        let name = name.as_str();
        let lock = match plan.mode {
            Mode::Shared => keeper.rw_lock(name).read(),
            Mode::Permit { of } => keeper.semaphore(name, of),
            _ => keeper.lock(name),
        };
        let lock: Lock = with_terms!(lock, plan, owner);
        Ok(match plan.wait {
            None => Some(lock.acquire().await?),
            Some(Duration::ZERO) => lock.try_acquire().await?,
            Some(limit) => Some(lock.acquire_within(limit).await?),
        }
        .map(Held::One))
    } else {
        let names = plan.names.iter().map(|name| name.as_str());
        let locks: Multi = with_terms!(keeper.multi(names), plan, owner);
        Ok(match plan.wait {
            None => Some(locks.acquire().await?),
            Some(Duration::ZERO) => locks.try_acquire().await?,
            Some(limit) => Some(locks.acquire_within(limit).await?),
        }
        .map(Held::Several))
    }
}

/// Polls the queue and prints who is ahead; never returns.
async fn tell_whom_we_wait_for<T>(keeper: &Keeper, plan: &Plan, owner: &Owner) -> T {
    let mut last: Option<(Obstacle, Instant)> = None;
    loop {
        let place = last.as_ref().and_then(|(obstacle, _)| obstacle.place).unwrap_or(1);
        let glances = 1 + u32::try_from(place).unwrap_or(u32::MAX) / PLACES_PER_GLANCE;
        sleep((GLANCE * glances).min(LONGEST_GLANCE)).await;
        let Some(obstacle) = Obstacle::find(keeper, plan, owner).await else { continue };
        let known = last.as_ref().is_some_and(|(before, said)| {
            obstacle.is_much_like(before) && said.elapsed() < REMINDER
        });
        if !known {
            // Awaited, so that lines do not pile up when stderr is stuck.
            let _ = output::say_aside(obstacle.to_string()).await;
            last = Some((obstacle, Instant::now()));
        }
    }
}

async fn not_free(keeper: &Keeper, plan: &Plan, owner: &Owner) -> Failure {
    let message = match Obstacle::find(keeper, plan, owner).await {
        Some(Obstacle { name, held: Some(held), .. }) => {
            format!("{name:?} is not free: held by {}", held.line)
        }
        _ => {
            let names: Vec<_> = plan.names.iter().map(|name| format!("{name:?}")).collect();
            format!("{} is not free", names.join(", "))
        }
    };
    Failure::new(plan.conflict_code, message)
}

/// What stands between us and the lock.
struct Obstacle {
    name: String,
    held: Option<Holders>,
    place: Option<usize>,
}

struct Holders {
    owners: Vec<Owner>,
    line: String,
}

impl Obstacle {
    /// `None` if nothing is in the way at this moment, or the store did not answer.
    async fn find(keeper: &Keeper, plan: &Plan, owner: &Owner) -> Option<Self> {
        let mut names: Vec<_> = plan.names.iter().collect();
        names.sort();
        for name in names {
            match keeper.show(name.as_str()).await {
                Ok(view) => {
                    if let Some(obstacle) = Self::seen_in(&view, owner) {
                        return Some(obstacle);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    let names: Vec<_> = plan.names.iter().map(|name| name.as_str()).collect();
                    return Some(Self { name: names.join(","), held: None, place: None });
                }
                Err(_) => return None,
            }
        }
        None
    }

    fn seen_in(view: &LockView, owner: &Owner) -> Option<Self> {
        let place = view.place_of(owner);
        // With several names, we hold the first ones ourselves.
        let ours = view.holders.iter().any(|holder| holder.owner == *owner);
        if ours && place.is_none() {
            return None;
        }
        let line = view.holders_line()?;
        let owners = view.holders.iter().map(|holder| holder.owner.clone()).collect();
        let held = Some(Holders { owners, line: visible(&line) });
        Some(Self { name: view.name.to_string(), held, place })
    }

    /// Whether a new message would tell nothing new.
    fn is_much_like(&self, other: &Self) -> bool {
        let owners = |it: &Self| it.held.as_ref().map(|held| held.owners.clone());
        self.name == other.name && self.place == other.place && owners(self) == owners(other)
    }
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "waiting for {:?}", self.name)?;
        if let Some(held) = &self.held {
            write!(f, ": held by {}", held.line)?;
        }
        match self.place {
            Some(place) => write!(f, "; place {place} in the queue"),
            None => Ok(()),
        }
    }
}
