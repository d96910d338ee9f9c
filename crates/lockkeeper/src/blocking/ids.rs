//! Opening ids without a runtime.

use super::Keeper;
use crate::error::Result;
use crate::id::{
    AutoIncrement, DateFormat, Dated, DatedLocal, Ids, Kind, Layout, Lease, Segment, Sequence,
    Snowflake,
};

/// The ids of one key in one store, to be opened; see [`IdKey`](crate::id::IdKey), which also says what
/// each function returns.
#[derive(Debug, Clone)]
pub struct IdKey {
    pub(super) inner: crate::id::IdKey,
    pub(super) keeper: Keeper,
}

/// Functions that open, each as the async one of the same name.
macro_rules! opens {
    ($($name:ident($($value:ident: $type:ty)?) -> $made:ty;)*) => {$(
        /// See the function of this name of [`IdKey`](crate::id::IdKey).
        ///
        /// # Errors
        /// As there.
        pub fn $name(self $(, $value: $type)?) -> Result<$made> {
            self.keeper.runtime.block_on(self.inner.$name($($value)?))
        }
    )*};
}

impl IdKey {
    /// See [`IdKey::floor`](crate::id::IdKey::floor).
    #[must_use]
    pub fn floor(self, floor: u64) -> Self {
        Self { inner: self.inner.floor(floor), ..self }
    }

    /// See [`IdKey::existing`](crate::id::IdKey::existing).
    #[must_use]
    pub fn existing(self) -> Self {
        Self { inner: self.inner.existing(), ..self }
    }

    /// See [`IdKey::lease`](crate::id::IdKey::lease).
    #[must_use]
    pub fn lease(self, lease: Lease) -> Self {
        Self { inner: self.inner.lease(lease), ..self }
    }

    opens! {
        sequence() -> Sequence;
        segment() -> Segment;
        auto_increment() -> AutoIncrement;
        snowflake(layout: Layout) -> Snowflake;
        dated(format: DateFormat) -> Dated;
        dated_local(format: DateFormat) -> DatedLocal;
        open() -> Ids;
        of_kind(kind: Kind) -> Ids;
    }
}
