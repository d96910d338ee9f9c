//! Ids that need no store: 128 bits, most of them random.

use super::generator::Generator;
use super::order::{Health, Order};
#[cfg(feature = "ulid")]
use crate::backend::support::sync::lock;
use crate::error::Result;

/// UUIDs of version 4: random, in no order.
///
/// ```
/// use lockkeeper::id::{Generator, Uuid4};
///
/// assert_eq!(Uuid4.try_next()?.unwrap().get_version_num(), 4);
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[cfg(feature = "uuid")]
#[derive(Debug, Clone, Copy, Default)]
pub struct Uuid4;

/// UUIDs of version 7: time in milliseconds, and random; growing in a process.
///
/// ```
/// use lockkeeper::id::{Generator, Uuid7};
///
/// assert!(Uuid7.try_next()? < Uuid7.try_next()?);
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[cfg(feature = "uuid")]
#[derive(Debug, Clone, Copy, Default)]
pub struct Uuid7;

/// ULIDs: as [`Uuid7`], written in 26 letters and digits; growing for each generator.
///
/// ```
/// use lockkeeper::id::{Generator, Ulids};
///
/// let ulids = Ulids::default();
/// assert!(ulids.try_next()? < ulids.try_next()?);
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[cfg(feature = "ulid")]
#[derive(Debug, Default)]
pub struct Ulids(std::sync::Mutex<ulid::Generator>);

/// A generator that always has an id.
macro_rules! always {
    ($type:ty, $id:ty, $order:expr, $next:expr) => {
        impl Generator for $type {
            type Id = $id;

            fn try_next(&self) -> Result<Option<Self::Id>> {
                let next: fn(&Self) -> $id = $next;
                Ok(Some(next(self)))
            }

            async fn next(&self) -> Result<Self::Id> {
                let next: fn(&Self) -> $id = $next;
                Ok(next(self))
            }

            async fn next_n(&self, count: u32) -> Result<Vec<Self::Id>> {
                let next: fn(&Self) -> $id = $next;
                Ok((0..count).map(|_| next(self)).collect())
            }

            fn order(&self) -> Order {
                $order
            }

            fn health(&self) -> Health {
                Health::default()
            }
        }
    };
}

#[cfg(feature = "uuid")]
always!(Uuid4, uuid::Uuid, Order::Unordered, |_| uuid::Uuid::new_v4());
#[cfg(feature = "uuid")]
always!(Uuid7, uuid::Uuid, Order::PerProcess, |_| uuid::Uuid::now_v7());
#[cfg(feature = "ulid")]
always!(Ulids, ulid::Ulid, Order::PerProcess, |this| {
    let mut generator = lock(&this.0);
    // After 2^80 in one millisecond it goes on in the next.
    generator.generate().unwrap_or_else(|overflow| overflow.commit_overflow_increment())
});
