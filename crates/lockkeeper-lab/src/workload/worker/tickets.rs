//! Claims that wander: a client hands its claim out as a ticket, and another, mostly of another process,
//! goes on with it.
//!
//! Tickets lie in a folder that all processes of a run share. Who renames one has it. A ticket that
//! nobody takes runs out, as does one whose finder is killed.

use super::{Shared, Stage, Turn};
use crate::dice::Dice;
use crate::history::{Mode, Refusal, What};
use anyhow::{Context, Result};
use lockkeeper::{ErrorKind, Guard, Ticket};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where tickets lie.
pub(super) struct Pool(PathBuf);

/// A ticket that was found, and the claim that it was first handed out for.
pub(super) struct Found {
    pub(super) ticket: Ticket,
    first: u64,
}

impl Pool {
    /// The pool of the run whose histories are in `folder`.
    pub(super) fn beside(history: &Path) -> Result<Self> {
        let folder = history.parent().context("a history is in a folder")?.join("tickets");
        fs::create_dir_all(&folder).context("no place for tickets")?;
        Ok(Self(folder))
    }

    fn put(&self, ticket: &Ticket, first: u64, claim: u64) -> Result<()> {
        let (making, made) = (self.0.join(format!("{claim}.new")), self.0.join(claim.to_string()));
        fs::write(&making, format!("{first} {ticket}"))?;
        Ok(fs::rename(making, made)?)
    }

    /// One of those that lie here, and nobody else's from now on.
    pub(super) fn take(&self, claim: u64) -> Option<Found> {
        let entries = fs::read_dir(&self.0).ok()?.filter_map(Result::ok);
        let lie = entries.filter(|entry| !entry.file_name().to_string_lossy().contains('.'));
        for entry in lie {
            let mine = self.0.join(format!("{claim}.taken"));
            if fs::rename(entry.path(), &mine).is_err() {
                continue;
            }
            let text = fs::read_to_string(&mine).ok()?;
            let _ = fs::remove_file(&mine);
            let (first, ticket) = text.split_once(' ')?;
            return Some(Found { first: first.parse().ok()?, ticket: ticket.parse().ok()? });
        }
        None
    }
}

/// Goes on with a claim that was handed out; how it was refused otherwise. A ticket that ran out is as
/// good as none.
pub(super) async fn take_over(
    shared: &Shared,
    client: &str,
    claim: u64,
    found: &Found,
) -> Result<Guard, Refusal> {
    let name = found.ticket.name.to_string();
    shared.recorder.note(client, What::Ask { claim, name, mode: Mode::Exclusive });
    shared.recorder.note(client, What::Continues { claim, of: found.first });
    shared.keeper.take_over(&found.ticket).await.map_err(|error| match error.kind() {
        ErrorKind::Lost => Refusal::Cancelled,
        _ => Refusal::Unknown,
    })
}

impl Turn<'_> {
    /// Hands the claim out, so that it is nobody's until its ticket is found.
    pub(super) async fn hand_out(&mut self, pool: &Pool, first: u64) -> Result<()> {
        let Stage::Holding(guard) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return Ok(());
        };
        let (recorder, claim) = (&self.shared.recorder, self.claim);
        // From here on this client does not believe in it any more.
        recorder.note(self.client, What::Release { claim });
        if let Ok(guard) = Arc::try_unwrap(guard)
            && let Ok(ticket) = guard.hand_out().await
        {
            pool.put(&ticket, first, claim)?;
        }
        recorder.note(self.client, What::Released { claim });
        Ok(())
    }
}

/// The claim that a claim goes back to: itself, unless it goes on with another.
pub(super) fn first_of(claim: u64, found: Option<&Found>) -> u64 {
    found.map_or(claim, |found| found.first)
}

/// Every other client asks for nothing, but goes on with what it finds: those that ask wait most of the
/// time, and would leave tickets to run out.
pub(super) fn only_finds(client: &str) -> bool {
    client.ends_with(['1', '3', '5', '7', '9'])
}

/// Whether to leave a ticket.
pub(super) fn wanders(dice: &mut Dice) -> bool {
    dice.roll(3) > 0
}

/// Gives back what lies there at the end.
pub(super) async fn clear(shared: &Shared, pool: &Pool) {
    let number = || shared.claims.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    while let Some(found) = pool.take(number()) {
        // What has run out need not be given back.
        let _ = shared.keeper.give_back(&found.ticket).await;
    }
}
