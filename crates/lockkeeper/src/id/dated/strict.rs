//! Dated ids that grow strictly for all: the count in the store is the tick, and follows the clock.

use super::format::DateFormat;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::id::clock::IdClock;
use crate::id::counter::Counter;
use crate::id::generator::Generator;
use crate::id::order::{Health, Order};
use crate::id::sequence::used_up;
use crate::id::value::Id;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::OnceCell;

/// After so long the store's clock is looked at again.
const LOOK: Duration = Duration::from_secs(10);

/// How far ids may run ahead of the clock, in seconds: when more are asked for than a second has.
const AHEAD: u64 = 2;

/// How often a batch waits for the clock before that is an error.
const TRIES: u32 = 100;

/// Decimal ids of one key that grow strictly, whoever asks, and in which a person reads the day: each call
/// is one request to the store, and so is a batch.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use lockkeeper::id::{DateFormat, Digits, Generator};
///
/// let keeper = lockkeeper::connect("memory:").await?;
/// let orders = keeper.ids("orders").dated(DateFormat::new(Digits::Second19)).await?;
/// let id = orders.next().await?;
/// assert_eq!(id.to_string().len(), 19);
/// assert!(orders.next().await? > id);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Dated {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    format: DateFormat,
    counter: Counter,
    clock: OnceCell<IdClock>,
    looked: tokio::sync::Mutex<Option<Moment>>,
}

impl Dated {
    pub(crate) fn new(counter: Counter, format: DateFormat) -> Self {
        let (clock, looked) = (OnceCell::new(), tokio::sync::Mutex::new(None));
        Self { shared: Arc::new(Shared { format, counter, clock, looked }) }
    }

    /// How its ids are written.
    pub fn format(&self) -> &DateFormat {
        &self.shared.format
    }

    /// Seconds since 1970 by the store's clock.
    async fn now(&self) -> Result<u64> {
        let Shared { clock, looked, counter, .. } = &*self.shared;
        let mut at = looked.lock().await;
        if at.is_none_or(|at| Moment::now().since(at) > LOOK) {
            let reading = counter.store().time().await?;
            match clock.get() {
                Some(clock) => clock.follow(reading, 0),
                None => drop(clock.set(IdClock::new(reading))),
            }
            *at = Some(Moment::now());
        }
        Ok(clock.get().map_or(0, IdClock::millis) / 1000)
    }

    /// The first of `count` ticks in a row.
    async fn reserve(&self, count: u32) -> Result<u64> {
        let Shared { format, counter, .. } = &*self.shared;
        let capacity = format.digits().capacity();
        let most = capacity.min(u64::from(u32::MAX)) * AHEAD;
        if u64::from(count) > most {
            let message = format!("at most {most} of these ids can be had at once, not {count}");
            return Err(Error::new(ErrorKind::Config, message));
        }
        for _ in 0..TRIES {
            let now = self.now().await?;
            let unit = format.unit_of(now);
            // A key that was lost and made anew: what was given ahead of the clock must be past.
            let born = format.unit_of(counter.record().born / 1000 + AHEAD);
            let again = counter.record().born > 0 && now <= counter.record().born / 1000 + AHEAD;
            let floor = if again { format.first_tick(born) } else { format.first_tick(unit) };
            let last = format.last_tick(format.unit_of(now + AHEAD).max(born));
            if unit > format.unit_of_tick(format.last()) {
                return Err(used_up());
            }
            match counter.reserve(count, floor, last.min(format.last())).await? {
                Some(first) => return Ok(first),
                // More than the second has were given: the next one is near.
                None => counter.store().sleep(Duration::from_millis(50)).await?,
            }
        }
        let message = "these ids are used up for some time: the store's clock went back, or too many \
                       were asked for";
        Err(Error::new(ErrorKind::Exhausted, message))
    }
}

impl Generator for Dated {
    type Id = Id;

    /// Always `None`: each is asked for.
    fn try_next(&self) -> Result<Option<Id>> {
        Ok(None)
    }

    async fn next(&self) -> Result<Id> {
        Ok(self.shared.format.id(self.reserve(1).await?, 0))
    }

    async fn next_n(&self, count: u32) -> Result<Vec<Id>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let first = self.reserve(count).await?;
        Ok((first..first + u64::from(count)).map(|tick| self.shared.format.id(tick, 0)).collect())
    }

    fn order(&self) -> Order {
        Order::Strict
    }

    fn health(&self) -> Health {
        let shared = &self.shared;
        let end = shared.format.seconds_of(shared.format.unit_of_tick(shared.format.last()) + 1);
        Health {
            left: Some(0),
            reservations: shared.counter.reservations(),
            end: Some(UNIX_EPOCH + Duration::from_secs(end)),
            ..Health::default()
        }
    }
}
