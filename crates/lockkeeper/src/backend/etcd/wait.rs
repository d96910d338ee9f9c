//! Waiting in the queue.

use super::debt::Debt;
use super::listener::{Ear, Listening, When};
use super::place::Place;
use super::queue::{Entered, Entry, Etcd, Looked};
use crate::backend::{Claim, Grant, Moment, Patience};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// A claim looks for itself this often, should everything else have failed it.
const RECHECK: Duration = Duration::from_secs(10);
/// The pause after a request that was not answered.
const PAUSE: Duration = Duration::from_millis(200);

enum Turn {
    Granted(Grant),
    Over,
    /// Our key is gone, or its session: to the end of the queue.
    AskAgain,
}

impl Etcd {
    /// Steps into the line, and waits for its turn if it must.
    pub(super) async fn wait(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        loop {
            let term = self.shared.session.term().await?;
            let turn = match self.shared.enter(claim, term).await? {
                Entered::At(entry, looked) => self.turn(claim, patience, entry, looked).await?,
                Entered::Again => Turn::AskAgain,
            };
            match turn {
                Turn::Granted(grant) => return Ok(Some(grant)),
                Turn::Over => return Ok(None),
                // The key of a session that ended is left to end with it; one that may not have
                // ended is owed.
                Turn::AskAgain if patience.is_over() => return Ok(None),
                Turn::AskAgain => {}
            }
        }
    }

    async fn turn(
        &self,
        claim: &Claim,
        patience: &Patience,
        entry: Entry,
        mut looked: Looked,
    ) -> Result<Turn> {
        let shared = &*self.shared;
        let look = Arc::new(Notify::new());
        let listen = |when, key: &[u8], revision| {
            shared.listener.listen(when, key, revision, Ear::Waiter(look.clone()))
        };
        let mut own = None;
        let mut watched: Vec<(Vec<u8>, Listening)> = Vec::new();
        loop {
            let Looked { sent, place, revision } = looked;
            match place {
                Place::Head => {
                    return Ok(match self.grant(claim, entry, sent) {
                        Some(grant) => Turn::Granted(grant),
                        None => Turn::AskAgain,
                    });
                }
                Place::Nowhere => return Ok(Turn::AskAgain),
                Place::Waits { number, behind } => {
                    number.iter().for_each(|number| patience.queued(*number));
                    let key = entry.ticket.key.bytes();
                    own.get_or_insert_with(|| listen(When::Later, key, entry.seen));
                    watched.retain(|(key, _)| behind.contains(key));
                    for key in behind {
                        if !watched.iter().any(|(watched, _)| *watched == key) {
                            let listening = listen(When::Now, &key, revision);
                            watched.push((key, listening));
                        }
                    }
                }
            }
            looked = loop {
                match self.stand(claim, patience, &entry, &look).await? {
                    Stood::Over => {
                        shared.leave(claim, &entry).await?;
                        return Ok(Turn::Over);
                    }
                    Stood::SessionOver => return Ok(Turn::AskAgain),
                    Stood::Look => {}
                }
                match shared.look(&entry).await {
                    Ok(looked) => {
                        patience.heard();
                        break looked;
                    }
                    Err(error) => {
                        if let Err(error) = forgive(patience, error) {
                            shared.debts.owe(claim.id, Debt::of(&entry));
                            return Err(error);
                        }
                        tokio::time::sleep(PAUSE).await;
                        look.notify_one();
                    }
                }
            };
        }
    }

    /// Waits until it is worth looking, and keeps the session alive meanwhile.
    async fn stand(
        &self,
        claim: &Claim,
        patience: &Patience,
        entry: &Entry,
        look: &Notify,
    ) -> Result<Stood> {
        let (shared, term) = (&*self.shared, &entry.term);
        let recheck = Moment::now() + RECHECK;
        let mut beat = term.sent() + term.beat();
        loop {
            if term.is_over() {
                if !term.is_gone() {
                    shared.debts.owe(claim.id, Debt::of(entry));
                }
                return Ok(Stood::SessionOver);
            }
            tokio::select! {
                biased;
                () = look.notified() => return Ok(Stood::Look),
                () = patience.over() => return Ok(Stood::Over),
                () = recheck.reached() => return Ok(Stood::Look),
                () = beat.reached() => match shared.keep_alive(term, term.beat() / 2).await {
                    Ok(()) => {
                        patience.heard();
                        shared.listener.revive();
                        beat = term.sent() + term.beat();
                    }
                    Err(error) => {
                        if let Err(error) = forgive(patience, error) {
                            shared.debts.owe(claim.id, Debt::of(entry));
                            return Err(error);
                        }
                        beat = Moment::now() + PAUSE;
                    }
                },
            }
        }
    }
}

enum Stood {
    Look,
    Over,
    SessionOver,
}

/// The error, once etcd has been silent for longer than one who waits forgives.
fn forgive(patience: &Patience, error: Error) -> Result<()> {
    if patience.silence() > patience.outage() || !error.is_retryable() {
        return Err(error);
    }
    tracing::debug!(%error, "no answer while waiting");
    Ok(())
}
