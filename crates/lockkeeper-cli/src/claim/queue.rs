//! Takes the lock, or says who has it.

use super::held::Held;
use super::obstacle::Obstacle;
use super::terms::Terms;
use super::waiting::tell_whom_we_wait_for;
use crate::exit::Failure;
use crate::output;
use lockkeeper::{ErrorKind, Keeper, Lock, Mode, Multi, Owner, Result};
use std::time::Duration;

/// Takes the locks that the terms name, or says why not.
///
/// Cancel safe: dropping it leaves the queue.
pub(crate) async fn take(keeper: &Keeper, terms: &Terms, owner: &Owner) -> Result<Held, Failure> {
    if !terms.manner.quiet {
        terms.warnings().iter().for_each(|warning| output::say(warning));
    }
    if terms.owner.is_some() && !keeper.capability().reentrant {
        refuse_what_is_ours(keeper, terms, owner).await?;
    }
    let taken = tokio::select! {
        taken = contend(keeper, terms, owner) => taken,
        never = tell_whom_we_wait_for(keeper, terms, owner) => never,
    };
    match taken {
        Ok(Some(held)) => Ok(held),
        Ok(None) => Err(not_free(keeper, terms, owner).await),
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            let Failure { message, .. } = error.into();
            // The library says who holds it.
            let obstacle = Obstacle::find(keeper, terms, owner).await;
            let disagreement = obstacle.and_then(|obstacle| obstacle.disagreement);
            let message = with_disagreement(message, disagreement);
            Err(Failure::new(terms.conflict_code, message))
        }
        Err(error) => Err(error.into()),
    }
}

/// Refuses a nested run that would deadlock: it would wait for the enclosing run that holds the
/// name, and that run waits for us.
async fn refuse_what_is_ours(keeper: &Keeper, terms: &Terms, owner: &Owner) -> Result<(), Failure> {
    for name in &terms.names {
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
    ($claim:expr, $terms:expr, $owner:expr) => {{
        let mut claim = $claim.ttl($terms.ttl).owner($owner).note(&$terms.note);
        if let Some(most) = $terms.max_hold {
            claim = claim.max_hold(most);
        }
        if let Some(least) = $terms.min_hold {
            claim = claim.min_hold(least);
        }
        if let Some(identity) = &$terms.identity {
            claim = claim.on_behalf_of(identity);
        }
        claim
    }};
}

async fn contend(keeper: &Keeper, terms: &Terms, owner: &Owner) -> Result<Option<Held>> {
    if let [name] = &terms.names[..] {
        let name = name.as_str();
        let lock = match terms.mode {
            Mode::Shared => keeper.rw_lock(name).read(),
            Mode::Permit { of } => keeper.semaphore(name, of),
            _ => keeper.lock(name),
        };
        let lock: Lock = with_terms!(lock, terms, owner);
        Ok(match terms.wait {
            None => Some(lock.acquire().await?),
            Some(Duration::ZERO) => lock.try_acquire().await?,
            Some(limit) => Some(lock.acquire_within(limit).await?),
        }
        .map(Held::One))
    } else {
        let names = terms.names.iter().map(|name| name.as_str());
        let locks: Multi = with_terms!(keeper.multi(names), terms, owner);
        Ok(match terms.wait {
            None => Some(locks.acquire().await?),
            Some(Duration::ZERO) => locks.try_acquire().await?,
            Some(limit) => Some(locks.acquire_within(limit).await?),
        }
        .map(Held::Several))
    }
}

async fn not_free(keeper: &Keeper, terms: &Terms, owner: &Owner) -> Failure {
    let message = match Obstacle::find(keeper, terms, owner).await {
        Some(Obstacle { name, held: Some(held), disagreement, .. }) => {
            let message = format!("{name:?} is not free: held by {}", held.line);
            with_disagreement(message, disagreement)
        }
        _ => {
            let names: Vec<_> = terms.names.iter().map(|name| format!("{name:?}")).collect();
            format!("{} is not free", names.join(", "))
        }
    };
    Failure::new(terms.conflict_code, message)
}

fn with_disagreement(message: String, disagreement: Option<String>) -> String {
    match disagreement {
        Some(disagreement) => format!("{message}; {disagreement}"),
        None => message,
    }
}
