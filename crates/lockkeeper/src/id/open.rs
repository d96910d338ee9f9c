//! From a key to its ids.

use super::any::{DatedLocal, Ids, Snowflake};
use super::auto_increment::{self, AutoIncrement};
use super::counter::Counter;
use super::dated::{DateFormat, Dated, Digits};
use super::layout::Layout;
use super::leased::{Lease, Leased};
use super::registry::KeyRecord;
use super::segment::Segment;
use super::sequence::Sequence;
use super::store::Store;
use super::striped::Opener;
use super::terms::Kind;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;

/// The ids of one key in one store, to be opened: what kind they are is on record there from the first
/// time on, and another kind is refused.
///
/// Every function that opens needs the store, and has its errors: [`ErrorKind::Config`] where another kind
/// is on record, [`ErrorKind::Unsupported`] where the store cannot keep count; else what the store said.
/// All are cancel safe: a key may have been made.
#[derive(Debug, Clone)]
pub struct IdKey {
    engine: Arc<Engine>,
    key: String,
    floor: Option<u64>,
    existing: bool,
    lease: Lease,
}

impl IdKey {
    pub(crate) fn new(engine: &Arc<Engine>, key: &str) -> Self {
        let (engine, key) = (engine.clone(), key.to_owned());
        Self { engine, key, floor: None, existing: false, lease: Lease::default() }
    }

    /// No number is below this: for a key that goes on with numbers from elsewhere, and for a store that
    /// lost its count. Give a number above every one that was used. Of sequences and segments.
    #[must_use]
    pub fn floor(mut self, floor: u64) -> Self {
        self.floor = Some(floor);
        self
    }

    /// Refuses a key that is not there, instead of making it: for keys whose store must not have been
    /// emptied.
    #[must_use]
    pub fn existing(mut self) -> Self {
        self.existing = true;
        self
    }

    /// How the worker number is leased, of kinds that have one.
    #[must_use]
    pub fn lease(mut self, lease: Lease) -> Self {
        self.lease = lease;
        self
    }

    /// Numbers that grow strictly, each by a request; see [`Sequence`].
    ///
    /// # Errors
    /// See [`IdKey`].
    pub async fn sequence(self) -> Result<Sequence> {
        Ok(Sequence::new(self.counter(Kind::Sequence).await?))
    }

    /// Numbers out of reserved ranges; see [`Segment`].
    ///
    /// # Errors
    /// See [`IdKey`].
    pub async fn segment(self) -> Result<Segment> {
        Ok(Segment::new(self.counter(Kind::Segment).await?))
    }

    /// Numbers of the database's own column; see [`AutoIncrement`].
    ///
    /// # Errors
    /// See [`IdKey`].
    pub async fn auto_increment(self) -> Result<AutoIncrement> {
        let store = Store::new(&self.engine)?;
        if !self.engine.backend.capability().auto_increment {
            return Err(auto_increment::refused(&store));
        }
        self.record(Some(&Kind::AutoIncrement)).await?;
        Ok(AutoIncrement::new(store))
    }

    /// Ids by the clock with a leased worker number; see [`Leased`].
    ///
    /// # Errors
    /// See [`IdKey`]; [`ErrorKind::Exhausted`] where all worker numbers are held.
    pub async fn snowflake(self, layout: Layout) -> Result<Snowflake> {
        let (store, record) = self.record(Some(&Kind::Snowflake(layout))).await?;
        Leased::open(store, record, layout, self.lease).await
    }

    /// Dated ids that grow strictly, each by a request; see [`Dated`].
    ///
    /// # Errors
    /// See [`IdKey`]; [`ErrorKind::Config`] for [`Digits::Worker19`], which are
    /// [`dated_local`](Self::dated_local).
    pub async fn dated(self, format: DateFormat) -> Result<Dated> {
        if format.digits() == Digits::Worker19 {
            return Err(Error::new(ErrorKind::Config, "ids with a worker number are dated_local"));
        }
        let counter = self.counter(Kind::Dated(format.clone())).await?;
        Ok(Dated::new(counter, format))
    }

    /// Dated ids by the clock with a leased worker number; of [`Digits::Worker19`].
    ///
    /// # Errors
    /// See [`IdKey`]; [`ErrorKind::Config`] for other digits, which are [`dated`](Self::dated).
    pub async fn dated_local(self, format: DateFormat) -> Result<DatedLocal> {
        if format.digits() != Digits::Worker19 {
            return Err(Error::new(
                ErrorKind::Config,
                "only worker19 has room for a worker number",
            ));
        }
        let (store, record) = self.record(Some(&Kind::Dated(format.clone()))).await?;
        Leased::open(store, record, format, self.lease).await
    }

    /// Ids of the kind that is on record.
    ///
    /// # Errors
    /// See [`IdKey`]; [`ErrorKind::Config`] where there is no such key.
    pub async fn open(self) -> Result<Ids> {
        let (_, record) = self.record(None).await?;
        self.of_kind(record.kind).await
    }

    /// Ids of this kind.
    ///
    /// # Errors
    /// See [`IdKey`]; [`ErrorKind::Unsupported`] for [`Kind::Striped`], which takes several stores.
    pub async fn of_kind(self, kind: Kind) -> Result<Ids> {
        Ok(match kind {
            Kind::Sequence => Ids::Sequence(self.sequence().await?),
            Kind::Segment => Ids::Segment(self.segment().await?),
            Kind::AutoIncrement => Ids::AutoIncrement(self.auto_increment().await?),
            Kind::Snowflake(layout) => Ids::Snowflake(self.snowflake(layout).await?),
            Kind::Dated(format) if format.digits() == Digits::Worker19 => {
                Ids::DatedLocal(self.dated_local(format).await?)
            }
            Kind::Dated(format) => Ids::Dated(self.dated(format).await?),
            Kind::Striped { stripe, of } => {
                let message = format!(
                    "the ids {:?} are number {} of {of} stores: open them with all of these \
                     (Striped::open)",
                    self.key,
                    stripe + 1
                );
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        })
    }

    pub(super) async fn record(&self, kind: Option<&Kind>) -> Result<(Store, KeyRecord)> {
        let store = Store::new(&self.engine)?;
        let window = self.lease.window;
        let record = KeyRecord::open(&store, &self.key, kind, window, self.existing).await?;
        Ok((store, record))
    }

    async fn counter(&self, kind: Kind) -> Result<Counter> {
        let (store, record) = self.record(Some(&kind)).await?;
        Counter::new(store, record, self.floor)
    }
}

impl Opener {
    /// The count of one stripe.
    pub(crate) async fn open(&self) -> Result<Arc<Counter>> {
        let key = self.keeper().await?.ids(&self.key);
        let kind = Kind::Striped { stripe: self.stripe, of: self.of };
        key.counter(kind).await.map(Arc::new)
    }
}
