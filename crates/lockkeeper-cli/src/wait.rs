//! `wait`: until a name is free, taking nothing.

use crate::arguments::StoreArguments;
use crate::claim::{self, LAST_WAIT};
use crate::exit::{self, Failure};
use crate::output;
use crate::text::{span, visible};
use clap::Args;
use lockkeeper::backend::LockView;
use lockkeeper::{Keeper, Name, Owner};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The first pause between two looks; each is half as long again as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// A look reads the whole queue of the name, so there is never more than one in this time for long.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long the store may be away before we give up.
const OUTAGE: Duration = Duration::from_secs(30);
/// How long we wait in silence.
const SILENCE: Duration = Duration::from_secs(1);
/// How often we repeat the same message.
const REMINDER: Duration = Duration::from_secs(30);

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    nobody held the name or waited for it
  64   wrong usage
  69   the store is unreachable or unusable
  75   the time was over, and the name not free
  77   the store refused us

Examples:
  lockkeeper wait nightly-backup && echo done
  lockkeeper wait -w 10m deploy || echo 'still deploying'
  lockkeeper wait -w 0 deploy && echo 'nobody deploys'";

#[derive(Debug, Args)]
pub(crate) struct WaitArguments {
    /// Wait at most this long; 0 looks once [default: for ever]
    #[arg(short, long, value_name = "DUR", value_parser = lockkeeper::parse_duration, allow_hyphen_values = true)]
    wait: Option<Duration>,

    #[command(flatten)]
    store: StoreArguments,

    /// The lock
    name: String,
}

pub(crate) async fn wait(asked: &WaitArguments) -> Result<u8, Failure> {
    let name = Name::new(&asked.name)?;
    // From here on: the time that it takes to connect is waiting, too.
    let begun = Instant::now();
    let keeper = claim::connect(&asked.store.url()?).await?;
    let outcome = until_free(&keeper, &name, asked.wait, begun).await;
    keeper.close(LAST_WAIT).await;
    outcome
}

async fn until_free(
    keeper: &Keeper,
    name: &Name,
    limit: Option<Duration>,
    begun: Instant,
) -> Result<u8, Failure> {
    let mut teller = Teller::new(begun);
    let mut pause = FIRST_PAUSE;
    let mut heard = None;
    loop {
        let left = limit.map(|limit| limit.saturating_sub(begun.elapsed()));
        let obstacle = match keeper.show(name.as_str()).await {
            Ok(view) if is_free(&view) => return Ok(exit::FINE),
            Ok(view) => {
                heard = Some(Instant::now());
                Some(view)
            }
            // A server that is restarted meanwhile does not end the waiting; one that never answered
            // does.
            Err(error) if error.is_retryable() && recently(heard) => None,
            Err(error) => return Err(error.into()),
        };
        // Looked at before the question was asked, so that the last look is not before the limit.
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Failure::new(exit::NOT_ACQUIRED, not_free(name, limit, obstacle.as_ref())));
        }
        if let Some(view) = &obstacle {
            teller.tell(view).await;
        }
        sleep(left.unwrap_or(pause).min(pause)).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

fn recently(heard: Option<Instant>) -> bool {
    heard.is_some_and(|heard| heard.elapsed() < OUTAGE)
}

/// A name whose holder has just left belongs to the first of those who wait.
fn is_free(view: &LockView) -> bool {
    view.holders.is_empty() && view.waiters.is_empty()
}

fn not_free(name: &Name, limit: Option<Duration>, view: Option<&LockView>) -> String {
    let after = match limit {
        Some(limit) if !limit.is_zero() => format!(" after {}", span(limit)),
        _ => String::new(),
    };
    let why = match view {
        None => "the store does not answer at the moment".to_owned(),
        Some(view) => at_it(view),
    };
    format!("{name:?} is not free{after}: {why}")
}

/// Who is at it.
fn at_it(view: &LockView) -> String {
    let waiting = match view.waiters.len() {
        0 => String::new(),
        number => format!("; {number} waiting"),
    };
    match view.holders_line() {
        Some(line) => format!("held by {}{waiting}", visible(&line)),
        None => format!("about to be granted{waiting}"),
    }
}

/// Says whom we wait for, when it has changed or was long ago.
struct Teller {
    /// When there is something to say the next time, if nothing changes.
    due: Instant,
    known: Vec<Owner>,
}

impl Teller {
    fn new(begun: Instant) -> Self {
        Self { due: begun + SILENCE, known: Vec::new() }
    }

    async fn tell(&mut self, view: &LockView) {
        let owners: Vec<_> = view.holders.iter().map(|holder| holder.owner.clone()).collect();
        let now = Instant::now();
        let begun = !self.known.is_empty();
        if (begun && owners != self.known && !owners.is_empty()) || now >= self.due {
            let name = view.name.as_str();
            // Awaited, so that lines do not pile up when stderr is stuck.
            let _ = output::say_aside(format!("waiting for {name:?}: {}", at_it(view))).await;
            self.due = now + REMINDER;
            self.known = owners;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper::Mode;
    use lockkeeper::backend::{HolderView, WaiterView};

    fn view(holders: &[&str], waiters: &[&str]) -> LockView {
        let owner = |id: &&str| Owner::new(id).unwrap();
        let mut view = LockView::new(Name::new("x").unwrap());
        view.holders = holders.iter().map(|id| HolderView::new(owner(id), Mode::Shared)).collect();
        view.waiters = waiters.iter().map(|id| WaiterView::new(owner(id), Mode::Shared)).collect();
        view
    }

    #[test]
    fn a_name_that_is_waited_for_is_not_free() {
        assert!(is_free(&view(&[], &[])));
        assert!(!is_free(&view(&["a"], &[])));
        assert!(!is_free(&view(&[], &["b"])));
    }

    #[test]
    fn what_stands_in_the_way_is_said() {
        let name = Name::new("x").unwrap();
        let limit = Some(Duration::from_secs(2));
        let line = not_free(&name, limit, Some(&view(&["a"], &["b", "c"])));
        assert_eq!(line, "\"x\" is not free after 2s: held by a; 2 waiting");
        let line = not_free(&name, Some(Duration::ZERO), Some(&view(&[], &["b"])));
        assert_eq!(line, "\"x\" is not free: about to be granted; 1 waiting");
        let line = not_free(&name, limit, None);
        assert!(line.ends_with("the store does not answer at the moment"), "{line}");
    }
}
