//! Claims that are found by their ids: of each a keeper has one hold at most, and asks for it once at a
//! time.

use crate::backend::support::sync::lock;
use crate::backend::{Grant, Lease};
use crate::claim::{Claim, ClaimId};
use crate::clock::Moment;
use crate::engine::{Engine, LEAVING};
use crate::error::Result;
use crate::guard::Guard;
use crate::hold::{Bounds, Hold};
use crate::patience::Patience;
use crate::reentry::Entry;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;

/// The requests under way. A backend knows those that wait by the ids of their claims: two with one id
/// would take each other's wake-ups.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    turns: Mutex<HashMap<ClaimId, Arc<tokio::sync::Mutex<()>>>>,
    /// Taken to look whether there is a hold, and to make one if not.
    beginning: Mutex<()>,
}

/// What this keeper has of a claim already.
pub(crate) enum Own {
    Held(Guard),
    /// It is being given back: the store has it perhaps, and soon not.
    Leaving,
    Nothing,
}

/// What became of a grant.
pub(crate) enum Begun {
    /// A guard of the claim's hold: a new one, or that of another request that was granted meanwhile.
    Held(Guard),
    /// The claim is being given back here. The grant may be from before that, so it is worth nothing.
    Leaving,
    /// It came so late that it is over already.
    Late(Box<dyn Lease>),
}

impl Asking {
    /// Waits until no other request for this id is under way here; `None` when patience runs out
    /// before. Others wait until what is returned is dropped.
    pub(crate) async fn alone(
        &self,
        id: ClaimId,
        patience: &Patience,
    ) -> Option<OwnedMutexGuard<()>> {
        let turn = {
            let mut turns = lock(&self.turns);
            // Those that nobody waits for or has are in the map alone.
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(id).or_default().clone()
        };
        match turn.clone().try_lock_owned() {
            Ok(alone) => Some(alone),
            Err(_) if patience.is_over() => None,
            Err(_) => tokio::select! {
                alone = turn.lock_owned() => Some(alone),
                () = patience.over() => None,
            },
        }
    }

    /// Makes a hold of what was granted, unless there is one: two holds of one claim would not hear of
    /// each other's release.
    ///
    /// # Errors
    /// When the claim is held here in a mode that does not cover this one.
    pub(crate) fn begin(
        &self,
        engine: &Arc<Engine>,
        claim: &Claim,
        grant: Grant,
        bounds: Bounds,
        asked: Moment,
    ) -> Result<Begun> {
        let _alone = lock(&self.beginning);
        match engine.reentry.enter(claim)? {
            // What was granted is dropped, not released.
            Some(Entry::Again(hold)) => return Ok(Begun::Held(Guard::new(hold))),
            Some(Entry::Leaving(_)) => return Ok(Begun::Leaving),
            None => {}
        }
        Ok(match Hold::begin(engine, claim.clone(), grant, bounds, asked) {
            Ok(hold) => {
                engine.reentry.remember(&hold);
                Begun::Held(Guard::new(hold))
            }
            Err(late) => Begun::Late(late),
        })
    }
}

/// What `engine` has of `claim` already. One that is on its way out is waited for, for `limit` and a
/// moment: to meet it in the store would be to find what is about to end.
pub(crate) async fn own(
    engine: &Arc<Engine>,
    claim: &Claim,
    limit: Option<Duration>,
) -> Result<Own> {
    let gone_by = limit.map_or(Duration::MAX, |limit| limit.max(LEAVING));
    let wait = async {
        loop {
            match engine.reentry.enter(claim)? {
                Some(Entry::Again(hold)) => return Ok(Own::Held(Guard::new(hold))),
                Some(Entry::Leaving(gone)) => gone.cancelled().await,
                None => return Ok(Own::Nothing),
            }
        }
    };
    tokio::time::timeout(gone_by, wait).await.unwrap_or(Ok(Own::Leaving))
}
