//! The caller's end of a held claim.

use crate::claim::{FencingToken, Mode, Owner};
#[cfg(feature = "metrics")]
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::hold::Hold;
use crate::loss::LossReason;
use crate::lost::Lost;
use crate::name::Name;
use crate::terms::unsupported;
use crate::ticket::Ticket;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// A held lock, read-lock, write-lock or permit.
///
/// It is renewed in the background until it is released, dropped or lost. There are three ways
/// out: [`release`](Self::release) waits for the store and reports, dropping releases in the
/// background, and [`detach`](Self::detach) leaves the claim to run out by itself.
///
/// Dropping needs no runtime and does not block: it works on any thread and in a panic. If the
/// process ends before the release was sent, the claim runs out after its ttl.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// let keeper = lockkeeper::connect("memory:").await?;
/// let guard = keeper.lock("orders/42").acquire().await?;
/// let answer = guard.run(async { 6 * 7 }).await?; // stops if the lock is lost
/// assert_eq!(answer, 42);
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "if unused the claim is released at once"]
pub struct Guard {
    /// `None` only while being consumed.
    hold: Option<Arc<Hold>>,
    /// Whether it reached the caller, who has not said that no work was done.
    at_work: bool,
    reached_caller: bool,
}

impl Guard {
    /// Takes over one stake in `hold`. Until it [reaches its caller](Self::reach_caller), its end
    /// leaves no `min_hold` to be served.
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        Self { hold: Some(hold), at_work: false, reached_caller: false }
    }

    /// Marks it as one that reaches its caller: done last, where nothing can go wrong any more.
    pub(crate) fn reach_caller(mut self) -> Self {
        self.hold().begin_work();
        (self.at_work, self.reached_caller) = (true, true);
        self
    }

    fn hold(&self) -> &Arc<Hold> {
        match &self.hold {
            Some(hold) => hold,
            None => unreachable!("only methods that consume the guard empty it"),
        }
    }

    fn into_hold(mut self) -> Arc<Hold> {
        match self.hold.take() {
            Some(hold) => hold,
            None => unreachable!("only methods that consume the guard empty it"),
        }
    }

    /// The name that is held.
    pub fn name(&self) -> &Name {
        &self.hold().claim().name
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.hold().claim().mode
    }

    /// How long the store keeps it without a renewal.
    pub(crate) fn ttl(&self) -> Duration {
        self.hold().claim().ttl
    }

    /// When the claim was granted.
    #[cfg(feature = "metrics")]
    pub(crate) fn held_since(&self) -> Moment {
        self.hold().acquired()
    }

    /// Whose claims on this name count as one with this.
    pub fn owner(&self) -> &Owner {
        &self.hold().claim().owner
    }

    /// The fencing token, fixed at grant: give it to the resource with every write. `None` where
    /// the store has none that never goes back.
    pub fn token(&self) -> Option<FencingToken> {
        self.hold().token()
    }

    /// The fencing token, for a caller that cannot do without: `guard.require_token()?` goes into the
    /// write. To learn of a store without tokens before the lock is taken, acquire it
    /// [`fenced`](crate::Lock::fenced).
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`], naming recipes that give tokens; and for a claim that was taken over
    /// by a ticket which does not know its token.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let keeper = lockkeeper::connect("memory:").await?;
    /// let guard = keeper.lock("orders/42").fenced().acquire().await?;
    /// assert_eq!(Some(guard.require_token()?), guard.token());
    /// # Ok(()) }
    /// ```
    pub fn require_token(&self) -> Result<FencingToken> {
        let hold = self.hold();
        hold.token().ok_or_else(|| match hold.engine().backend.capability().fencing {
            false => unsupported(hold.engine(), "fencing tokens", |c| c.fencing),
            true => Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the ticket by which {:?} was taken over has no token: make tickets by \
                     Guard::hand_out, or by Ticket::with_token",
                    self.name()
                ),
            ),
        })
    }

    /// Resolves when the claim is lost.
    ///
    /// It does so before anyone else can be granted the name, also while the store does
    /// not answer; but a process that is paused learns of it only when it goes on. That is what
    /// the [`token`](Self::token) is for.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// # let keeper = lockkeeper::connect("memory:").await?;
    /// let guard = keeper.lock("orders/42").acquire().await?;
    /// tokio::select! {
    ///     () = async { /* the work */ } => {}
    ///     () = guard.lost() => eprintln!("lost: {:?}", guard.lost_reason()),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn lost(&self) -> Lost {
        Lost::new(self.hold().lost())
    }

    /// Has `signal` cancelled when the claim is lost, at once if it is already.
    pub(crate) fn signal_loss_to(&self, signal: &Arc<CancellationToken>) {
        self.hold().signal_loss_to(signal);
    }

    /// Why the claim was lost; `None` while it is held.
    pub fn lost_reason(&self) -> Option<LossReason> {
        self.hold().lost_reason()
    }

    /// Whether the claim is valid at this moment, by our own clock.
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long the claim is valid if no renewal succeeds from now on.
    pub fn remaining(&self) -> Duration {
        self.hold().remaining()
    }

    /// Whether the store could not be reached when it last should have been: the claim is
    /// neither lost nor certain to last. It is valid for as long as
    /// [`remaining`](Self::remaining) says, and safe again with the next renewal.
    pub fn is_in_jeopardy(&self) -> bool {
        self.hold().is_endangered()
    }

    /// How long nobody else can be granted the name, as far as the store's lease goes: what is
    /// left to stop the work in when the claim is lost. Unlike [`remaining`](Self::remaining) it
    /// does not end with `max_hold`. A lock that was broken, or that the store has lost, may be
    /// another's at once.
    pub fn until_others(&self) -> Duration {
        self.hold().until_others()
    }

    /// Runs `work`, and drops it half-way if the claim is lost.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`], with the reason, when the claim was lost before `work` was done;
    /// `Ok` means that it was held all the time.
    ///
    /// # Cancel safety
    /// As cancel safe as `work`; the claim stays held.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let lost = self.hold().lost();
        if self.is_held() {
            tokio::select! {
                biased;
                () = lost.cancelled() => {}
                // Work that blocked its thread can have outlived the claim unnoticed.
                output = work => if self.is_held() {
                    return Ok(output);
                },
            }
        }
        Err(lost_error(self.name(), self.lost_reason()))
    }

    /// Another guard of the same claim. The claim is released with the last of them.
    pub fn share(&self) -> Guard {
        // Cannot fail: this guard's own stake keeps the count above zero.
        let shared = self.hold().add_stake();
        debug_assert!(shared);
        Guard::new(self.hold().clone()).reach_caller()
    }

    /// Says that no work was done under this guard: the claim need not stay for
    /// [`min_hold`](crate::Lock::min_hold) after its release. Where several guards share the
    /// claim, it stays unless all of them say so.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// # use std::time::Duration;
    /// # let keeper = lockkeeper::connect("memory:").await?;
    /// let once_an_hour = keeper.lock("report").min_hold(Duration::from_secs(3600));
    /// let mut guard = once_an_hour.acquire().await?;
    /// // The program for it is not there, so this hour's report has not been made.
    /// guard.cancel_min_hold();
    /// guard.release().await?;
    /// assert!(once_an_hour.try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub fn cancel_min_hold(&mut self) {
        if std::mem::take(&mut self.at_work) {
            self.hold().undo_work();
        }
    }

    /// Gives the claim back and waits until the store has it.
    ///
    /// With [`min_hold`](crate::Lock::min_hold) the claim stays in the store for the rest of
    /// that time, without this process.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] when the claim had been lost before, also where the store tells so only
    /// now. [`ErrorKind::Unavailable`] when
    /// the store did not answer; the release is then tried again in the background until the
    /// claim would have run out anyway.
    ///
    /// # Cancel safety
    /// Cancel safe: once called, the release goes on in the background.
    pub async fn release(self) -> Result<()> {
        let hold = self.into_hold();
        let engine = hold.engine().clone();
        let span = tracing::debug_span!("release", name = hold.claim().name.as_str());
        engine.completing(hold.release().instrument(span))?.await
    }

    /// Stops renewing, and returns what keeps the claim from now on: its ticket, with which any process
    /// can [keep](crate::Keeper::keep) it, [give it back](crate::Keeper::give_back) or
    /// [take it over](crate::Keeper::take_over). The store is asked once more before, so that the claim
    /// has its whole ttl from here; then it runs out unless it is kept.
    ///
    /// Where guards share the claim, the ticket counts as one more of them, and as the last: the claim is
    /// renewed here until those that are left have gone, and is not given back with them.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where a claim lives and dies with its keeper, naming stores where it
    /// does not; [`ErrorKind::Config`] for a claim with `min_hold` or `max_hold`, which a ticket does not
    /// know of; [`ErrorKind::Lost`]; [`ErrorKind::Unavailable`] when the store did not answer. In all of
    /// these the guard is gone, and its claim given back as if the guard had been dropped.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped at any point, it gives the claim back as if the guard had been dropped.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let keeper = lockkeeper::connect("memory:").await?;
    /// let guard = keeper.lock("orders/42").acquire().await?;
    /// let text = guard.hand_out().await?.to_string(); // to a file, a queue, another process
    ///
    /// let guard = keeper.take_over(&text.parse()?).await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn hand_out(self) -> Result<Ticket> {
        // Should the caller leave meanwhile, the guard is dropped like any other.
        self.confirm().await?;
        Ok(self.into_ticket())
    }

    /// Has the store confirm the claim, as one that is kept by its ticket alone.
    pub(crate) async fn confirm(&self) -> Result<()> {
        let hold = self.hold().clone();
        hold.may_be_handed_out()?;
        let engine = hold.engine().clone();
        engine.completing(async move { hold.confirm().await })?.await
    }

    /// Leaves a claim that was confirmed to its ticket.
    pub(crate) fn into_ticket(self) -> Ticket {
        let hold = self.into_hold();
        let ticket = Ticket::of(hold.claim()).with_token(hold.token());
        hold.leave_to_ticket(true);
        hold.detach();
        ticket
    }

    /// One by which a ticket was taken over: the claim is given back with the last guard again.
    pub(crate) fn taken_over(self) -> Self {
        self.hold().leave_to_ticket(false);
        self
    }

    /// Stops renewing without giving the claim back: it stays taken for the rest of its ttl.
    /// Where the claim is shared, this counts when the last guard goes by `detach`.
    ///
    /// A renewal that is under way may reach the store after this. With the recipes `reentrant` and
    /// `set-nx-px` of Redis the claim then ends with the ttl of this guard, also where a ticket with a longer
    /// ttl was renewed in between; elsewhere no renewal shortens what another was told.
    pub fn detach(self) {
        self.into_hold().detach();
    }
}

pub(crate) fn lost_error(name: &Name, reason: Option<LossReason>) -> Error {
    let why = reason.map_or_else(|| "it is no longer held".to_owned(), |why| why.to_string());
    Error::new(ErrorKind::Lost, format!("the lock {name:?} was lost: {why}"))
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        match hold.claim().by_id && !self.reached_caller {
            true => hold.abandon(),
            false => hold.release_unattended(),
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(self.hold()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClaimId, Keeper};

    const LONG: Duration = Duration::from_secs(600);

    async fn held_by_id(keeper: &Keeper) -> Guard {
        let id = ClaimId::random().unwrap();
        keeper.lock("orders").ttl(LONG).claim(id).acquire().await.unwrap()
    }

    /// One more guard of the same claim, of a caller that left before it got it.
    fn unreached(guard: &Guard) -> Guard {
        assert!(guard.hold().add_stake());
        Guard::new(guard.hold().clone())
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_reached_nobody_does_not_keep_what_was_given_back() {
        let keeper = crate::connect("memory:").await.unwrap();
        let guard = held_by_id(&keeper).await;
        let left = unreached(&guard);
        guard.release().await.unwrap();
        assert!(keeper.lock("orders").try_acquire().await.unwrap().is_none());
        drop(left);
        let next = keeper.lock("orders").acquire_within(Duration::from_secs(5)).await;
        assert!(next.is_ok(), "{next:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_reached_nobody_leaves_the_claim_to_others_with_its_id() {
        let keeper = crate::connect("memory:").await.unwrap();
        let guard = held_by_id(&keeper).await;
        let left = unreached(&guard);
        let ticket = guard.hand_out().await.unwrap();
        drop(left);
        assert!(keeper.keep(&ticket).await.is_ok());
    }
}
