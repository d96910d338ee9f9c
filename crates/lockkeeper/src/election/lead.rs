//! The loop of a program that works while it leads: campaign, work, and campaign again after a loss.

use super::Election;
use crate::claim::FencingToken;
use crate::clock::Moment;
use crate::completing::Entered;
use crate::error::{Error, ErrorKind};
use std::time::Duration;

/// The pause before the first campaign after a loss.
const SHORTEST: Duration = Duration::from_millis(100);
/// The longest pause before a campaign.
const LONGEST: Duration = Duration::from_secs(15);
/// A term that lasted for so long ends the doubt whether campaigning is of any use.
const STEADY: Duration = Duration::from_secs(60);

impl Election {
    /// Does `work` for as long as this process leads: campaigns, calls `work` with the term, and
    /// campaigns again whenever the office is lost, until `work` returns. Then it resigns and returns
    /// what `work` did.
    ///
    /// The future that `work` returned is dropped half-way when the office is lost, and `work` is called
    /// anew, with a larger term, once elected again. What `work` returned counts only if the office was
    /// held until then; else the loop goes on. Before it campaigns again it pauses: for a tenth of a
    /// second at first, twice as long each time up to 15 s, and a tenth again after a term of a minute.
    ///
    /// A store that is out of reach is asked again after such pauses, without end.
    ///
    /// # Errors
    /// What `work` returned; or, as an error of the same type, that of a campaign that no waiting would
    /// help: [`ErrorKind::Unsupported`], [`ErrorKind::Denied`] and others that are not
    /// [retryable](Error::is_retryable).
    ///
    /// # Cancel safety
    /// Cancel safe: dropped at any point, it drops `work`, leaves the queue of candidates and resigns in
    /// the background.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let keeper = lockkeeper::connect("memory:").await?;
    /// let election = keeper.election("scheduler").note("http://10.0.0.1:8080");
    /// let jobs = election
    ///     .lead(async |term| {
    ///         // … as leader, with `term` in every order, until there is no more to do …
    ///         Ok::<_, lockkeeper::Error>(format!("done in term {term}"))
    ///     })
    ///     .await?;
    /// assert!(jobs.starts_with("done"));
    /// # Ok(()) }
    /// ```
    pub async fn lead<T, E, W>(&self, mut work: impl FnMut(FencingToken) -> W) -> Result<T, E>
    where
        E: From<Error>,
        W: Future<Output = Result<T, E>>,
    {
        let mut again = Again::default();
        loop {
            let leadership = match self.campaign().await {
                Ok(leadership) => leadership,
                Err(error) if Again::may_help(&error) => {
                    tracing::debug!(name = self.name, %error, "campaigning again");
                    self.pause(again.after(Duration::ZERO)).await?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let elected = Moment::now();
            match leadership.run(work(leadership.term())).await {
                Ok(outcome) => {
                    // Not answered, it is tried again in the background; the work is done either way.
                    let _ = leadership.resign().await;
                    return outcome;
                }
                // Dropped before the next campaign, so that it is not in the way of that.
                Err(_lost) => drop(leadership),
            }
            self.pause(again.after(Moment::now().since(elected))).await?;
        }
    }

    async fn pause(&self, span: Duration) -> Result<(), Error> {
        let spread = self.engine.ids.next().spread(64);
        // Candidates that lost the store together do not all come back together.
        let span = span - span / 128 * spread;
        let runtime = self.engine.background.handle()?;
        Entered::new(async move { tokio::time::sleep(span).await }, runtime).await;
        Ok(())
    }
}

/// How long to pause before the next campaign.
#[derive(Debug)]
pub(crate) struct Again {
    next: Duration,
}

impl Default for Again {
    fn default() -> Self {
        Self { next: SHORTEST }
    }
}

impl Again {
    /// Whether another campaign may succeed where this one failed.
    pub(crate) fn may_help(error: &Error) -> bool {
        error.is_retryable() || error.kind() == ErrorKind::Store
    }

    /// The pause after a term that lasted for `term`; zero for a campaign in vain.
    pub(crate) fn after(&mut self, term: Duration) -> Duration {
        if term >= STEADY {
            *self = Self::default();
        }
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Keeper;
    use crate::backend::memory::Memory;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn keepers() -> (Keeper, Keeper) {
        let store = Arc::new(Memory::new());
        (Keeper::new(store.clone()).unwrap(), Keeper::new(store).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_loss_the_work_begins_anew_with_a_larger_term() {
        let (one, operator) = keepers();
        let begun = Arc::new(AtomicUsize::new(0));
        let counted = begun.clone();
        let leading = tokio::spawn(async move {
            let mut terms = Vec::new();
            let work = |term| {
                terms.push(term);
                let round = counted.fetch_add(1, Ordering::SeqCst);
                async move {
                    match round {
                        0 | 1 => std::future::pending().await,
                        _ => Ok::<_, Error>("done"),
                    }
                }
            };
            let outcome = one.election("office").lead(work).await;
            (outcome, terms)
        });
        for round in 1..=2 {
            let token = loop {
                tokio::time::sleep(Duration::from_millis(5)).await;
                let view = operator.show("office").await.unwrap();
                if begun.load(Ordering::SeqCst) == round && !view.holders.is_empty() {
                    break view.holders[0].token.unwrap();
                }
            };
            operator.break_hold("office", token, "to see it come back").await.unwrap();
        }
        let (outcome, terms) = leading.await.unwrap();
        assert_eq!(outcome.unwrap(), "done");
        assert!(terms.len() == 3 && terms.is_sorted_by(|a, b| a < b), "{terms:?}");
        assert!(operator.show("office").await.unwrap().holders.is_empty(), "it did not resign");
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_of_the_work_ends_it_and_is_returned() {
        let (one, other) = keepers();
        let failing = async |_| Err::<(), _>(Error::new(ErrorKind::Config, "mine"));
        let outcome = one.election("office").lead(failing).await;
        assert_eq!(outcome.unwrap_err().to_string(), "mine");
        assert!(other.election("office").try_campaign().await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_it_drops_the_work_and_resigns() {
        struct Dropped(Arc<AtomicUsize>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let (one, other) = keepers();
        let dropped = Arc::new(AtomicUsize::new(0));
        let election = one.election("office");
        let leading = election.lead(async |_| {
            let _work = Dropped(dropped.clone());
            std::future::pending::<Result<(), Error>>().await
        });
        assert!(tokio::time::timeout(Duration::from_secs(120), leading).await.is_err());
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
        let elected = other.election("office").campaign_within(Duration::from_secs(5)).await;
        elected.unwrap().resign().await.unwrap();
    }

    #[test]
    fn pauses_grow_and_a_long_term_makes_them_short_again() {
        let mut again = Again::default();
        let pauses: Vec<_> = (0..10).map(|_| again.after(Duration::ZERO)).collect();
        assert!(pauses.is_sorted(), "{pauses:?}");
        assert_eq!((pauses[0], pauses[1], pauses[9]), (SHORTEST, SHORTEST * 2, LONGEST));
        assert_eq!(again.after(STEADY), SHORTEST);
    }

    #[test]
    fn an_outage_is_waited_out_and_a_refusal_is_not() {
        let error = |kind| Error::new(kind, "scripted");
        assert!(Again::may_help(&error(ErrorKind::Unavailable)));
        assert!(!Again::may_help(&error(ErrorKind::Unavailable).lasting()));
        assert!(!Again::may_help(&error(ErrorKind::Unsupported)));
        assert!(!Again::may_help(&error(ErrorKind::Denied)));
    }
}
