//! Numbers of several stores that know nothing of each other: of n stores the k-th gives those that leave
//! k when divided by n.
//!
//! A count that stood still while its store was away would go on far behind the others. So each count is
//! moved on to the clock: numbers are in microseconds since 2025, and those of all stores stay together.

use super::clock::IdClock;
use super::counter::Counter;
use super::generator::Generator;
use super::order::{Health, Order};
use super::value::Id;
use crate::address::Address;
use crate::backend::LAST_NUMBER;
use crate::backend::support::sync::lock;
use crate::background::Background;
use crate::clock::Moment;
use crate::completing::Entered;
use crate::connect;
use crate::error::{Error, ErrorKind, Result};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long one store may take before the next is asked.
const LIMIT: Duration = Duration::from_secs(1);

/// After so long a store that failed is asked again.
const REST: Duration = Duration::from_secs(5);

/// After so long a store's clock is looked at again.
const LOOK: Duration = Duration::from_secs(10);

/// The beginning of 2025, in microseconds since 1970.
pub(crate) const EPOCH: u64 = 1_735_689_600_000_000;

/// Numbers of several stores, unique over all of them, that go on while some are down. They grow here,
/// and those of different processes are together in time.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use lockkeeper::id::{Generator, Striped};
///
/// let one = lockkeeper::connect("memory:").await?;
/// let two = lockkeeper::connect("memory:").await?;
/// let ids = Striped::open(&[one, two], "orders").await?;
/// assert!(ids.next().await? < ids.next().await?);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Striped {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    stripes: Vec<Stripe>,
    /// The one that is asked first.
    first: AtomicUsize,
    /// The largest number given here.
    last: AtomicU64,
    reservations: AtomicU64,
    /// Has the timers.
    background: Background,
}

/// One of the stores.
#[derive(Debug)]
pub(crate) struct Stripe {
    pub(crate) opened: tokio::sync::OnceCell<Arc<Counter>>,
    pub(crate) opener: Opener,
    state: Mutex<StripeState>,
}

/// What opens the count of a stripe, once its store answers.
#[derive(Debug)]
pub(crate) struct Opener {
    source: Source,
    pub(crate) key: String,
    pub(crate) stripe: u32,
    pub(crate) of: u32,
}

/// A store that may not have answered yet.
#[derive(Debug)]
enum Source {
    Keeper(crate::Keeper),
    /// Connected when first needed.
    Later {
        address: Address,
        outage: Duration,
        keeper: tokio::sync::OnceCell<crate::Keeper>,
    },
}

#[derive(Debug, Default)]
struct StripeState {
    clock: Option<(Arc<IdClock>, Moment)>,
    failed: Option<(Moment, String)>,
}

impl Striped {
    /// Over these stores, always in this order: each has on record which one it is. At least one of them
    /// must answer; those that do not are opened when they are back.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] where a store has another order on record, or is there twice;
    /// [`ErrorKind::Unsupported`] where one cannot keep count; what the last store said where none
    /// answers.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn open(keepers: &[crate::Keeper], key: &str) -> Result<Self> {
        Self::over(keepers.iter().cloned().map(Source::Keeper).collect(), key).await
    }

    /// As [`open`](Self::open), over the stores of these URLs: one that cannot be reached is connected to
    /// when it is back, where [`connect`](crate::connect()) would fail.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`ErrorKind::Config`] for a URL that makes no sense.
    ///
    /// # Cancel safety
    /// Cancel safe.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// use lockkeeper::id::{Generator, Striped};
    ///
    /// let ids = Striped::connect(&["memory:", "memory:"], "orders").await?;
    /// assert!(ids.next().await? < ids.next().await?);
    /// # Ok(()) }
    /// ```
    pub async fn connect(urls: &[impl AsRef<str> + Sync], key: &str) -> Result<Self> {
        let sources = urls.iter().map(|url| {
            let (address, outage) = connect::parse(url.as_ref())?;
            Ok(Source::Later { address, outage, keeper: Default::default() })
        });
        Self::over(sources.collect::<Result<_>>()?, key).await
    }

    async fn over(sources: Vec<Source>, key: &str) -> Result<Self> {
        let of = u32::try_from(sources.len()).ok().filter(|of| (2..=64).contains(of));
        let of = of.ok_or_else(|| {
            Error::new(ErrorKind::Config, "numbers are striped over 2 to 64 stores")
        })?;
        let stripes = sources.into_iter().zip(0u32..).map(|(source, stripe)| {
            let opener = Opener { source, key: key.to_owned(), stripe, of };
            Stripe { opened: Default::default(), opener, state: Mutex::default() }
        });
        let shared = Shared {
            stripes: stripes.collect(),
            first: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            reservations: AtomicU64::new(0),
            background: Background::new(),
        };
        shared.open().await?;
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The first of `count` numbers, each `step` after the one before.
    async fn reserve(&self, count: u32) -> Result<(u64, u64)> {
        let all = self.shared.stripes.len();
        let first = self.shared.first.load(Ordering::Relaxed);
        let mut failure = None;
        // Those that failed lately last.
        let order = (0..all).map(|at| (first + at) % all);
        let (rested, tired): (Vec<_>, Vec<_>) =
            order.partition(|number| !self.shared.stripes[*number].is_tired());
        for number in rested.into_iter().chain(tired) {
            let stripe = &self.shared.stripes[number];
            let last = self.shared.last.load(Ordering::Relaxed);
            match stripe.reserve(&self.shared.background, count, last).await {
                Ok(numbers) => {
                    self.shared.first.store(number, Ordering::Relaxed);
                    self.shared.reservations.fetch_add(1, Ordering::Relaxed);
                    let (first, step) = numbers;
                    let last = first + step * u64::from(count - 1);
                    self.shared.last.fetch_max(last, Ordering::Relaxed);
                    return Ok(numbers);
                }
                Err(error) => {
                    stripe.failed(&error);
                    failure = Some(error);
                }
            }
        }
        Err(failure.unwrap_or_else(super::sequence::used_up))
    }
}

impl Shared {
    /// Opens all at once. When one has answered, the others have [`LIMIT`] more, and are opened later if
    /// that is not enough: a host that swallows everything must not delay the others by its own limit.
    async fn open(&self) -> Result<()> {
        let mut opening: FuturesUnordered<_> = self.stripes.iter().map(Stripe::open).collect();
        let (mut silent, mut until) = (None, None);
        loop {
            let next = within(&self.background, until, opening.next()).await?;
            match next.flatten() {
                Some((_, Ok(()))) => {
                    until.get_or_insert(Moment::now() + LIMIT);
                }
                Some((stripe, Err(error))) if error.is_retryable() => {
                    stripe.failed(&error);
                    silent = Some(error);
                }
                Some((_, Err(error))) => return Err(error),
                None => break,
            }
        }
        for stripe in self.stripes.iter().filter(|stripe| !stripe.opened.initialized()) {
            stripe.failed_if_not(&slow(stripe));
        }
        match silent {
            Some(error) if until.is_none() => Err(error),
            _ => Ok(()),
        }
    }
}

/// What `work` comes to before `until`, on whatever executor; `None` when it takes longer.
async fn within<T: Send>(
    background: &Background,
    until: Option<Moment>,
    work: impl Future<Output = T> + Send,
) -> Result<Option<T>> {
    let race = async move {
        let Some(until) = until else { return Some(work.await) };
        tokio::select! {
            biased;
            output = work => Some(output),
            () = until.reached() => None,
        }
    };
    Ok(Entered::new(race, background.handle()?).await)
}

fn slow(stripe: &Stripe) -> Error {
    let message = format!("{} did not answer within {LIMIT:?}", stripe.opener);
    Error::new(ErrorKind::Unavailable, message)
}

impl Opener {
    /// The keeper of its store, which is connected to when first needed.
    pub(crate) async fn keeper(&self) -> Result<&crate::Keeper> {
        match &self.source {
            Source::Keeper(keeper) => Ok(keeper),
            Source::Later { address, outage, keeper } => {
                keeper.get_or_try_init(|| connect::connect_to(address.clone(), *outage)).await
            }
        }
    }
}

impl fmt::Display for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Keeper(keeper) => keeper.fmt(f),
            Source::Later { address, .. } => address.fmt(f),
        }
    }
}

impl Stripe {
    /// The count in its store, which is opened when first needed.
    async fn counter(&self) -> Result<&Arc<Counter>> {
        let opener = &self.opener;
        self.opened.get_or_try_init(|| opener.open()).await
    }

    async fn open(&self) -> (&Self, Result<()>) {
        (self, self.counter().await.map(drop))
    }

    fn is_tired(&self) -> bool {
        let state = lock(&self.state);
        state.failed.as_ref().is_some_and(|(at, _)| Moment::now().since(*at) < REST)
    }

    fn failed(&self, error: &Error) {
        lock(&self.state).failed = Some((Moment::now(), error.to_string()));
    }

    fn failed_if_not(&self, error: &Error) {
        let mut state = lock(&self.state);
        state.failed.get_or_insert_with(|| (Moment::now(), error.to_string()));
    }

    /// Numbers of this stripe above `last`, and how far they are apart.
    async fn reserve(&self, background: &Background, count: u32, last: u64) -> Result<(u64, u64)> {
        let asked = async {
            let counter = self.counter().await?;
            let now = self.now(counter).await?;
            let (of, stripe) = (u64::from(self.opener.of), u64::from(self.opener.stripe));
            // The number m of this store is the number m × n + k of all.
            let floor = now.max(last + 1).saturating_sub(stripe).div_ceil(of);
            let first = counter.reserve(count, floor, LAST_NUMBER / of - 1).await?;
            let first = first.ok_or_else(super::sequence::used_up)?;
            Ok((first * of + stripe, of))
        };
        let outcome = within(background, Some(Moment::now() + LIMIT), asked).await?;
        let numbers = outcome.unwrap_or_else(|| Err(slow(self)))?;
        lock(&self.state).failed = None;
        Ok(numbers)
    }

    /// Microseconds since 2025 by the store's clock.
    async fn now(&self, counter: &Counter) -> Result<u64> {
        let known = lock(&self.state).clock.clone();
        let clock = match known {
            Some((clock, at)) if Moment::now().since(at) < LOOK => clock,
            known => {
                let reading = counter.store().time().await?;
                let clock = match known {
                    Some((clock, _)) => {
                        clock.follow(reading, 0);
                        clock
                    }
                    None => Arc::new(IdClock::new(reading)),
                };
                lock(&self.state).clock = Some((clock.clone(), Moment::now()));
                clock
            }
        };
        Ok((clock.millis() * 1000).saturating_sub(EPOCH))
    }
}

impl Generator for Striped {
    type Id = Id;

    /// Always `None`: each number is asked for.
    fn try_next(&self) -> Result<Option<Id>> {
        Ok(None)
    }

    async fn next(&self) -> Result<Id> {
        self.reserve(1).await.map(|(first, _)| Id::new(first))
    }

    async fn next_n(&self, count: u32) -> Result<Vec<Id>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let (first, step) = self.reserve(count).await?;
        Ok((0..u64::from(count)).map(|at| Id::new(first + at * step)).collect())
    }

    fn order(&self) -> Order {
        Order::RoughlyByTime(Duration::from_secs(1))
    }

    fn health(&self) -> Health {
        let troubles = self.shared.stripes.iter().filter_map(|stripe| {
            let state = lock(&stripe.state);
            state.failed.as_ref().map(|(_, why)| format!("{}: {why}", stripe.opener))
        });
        let trouble = troubles.collect::<Vec<_>>().join("; ");
        Health {
            left: Some(0),
            reservations: self.shared.reservations.load(Ordering::Relaxed),
            trouble: Some(trouble).filter(|trouble| !trouble.is_empty()),
            ..Health::default()
        }
    }
}
