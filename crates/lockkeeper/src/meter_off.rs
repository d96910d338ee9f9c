//! Stands for `meter.rs` where the feature `metrics` is off: measures nothing, and costs nothing.

use crate::backend::{Backend, Standing};
use crate::claim::Claim;
use crate::clock::Moment;
use crate::error::Result;
use crate::event::EventKind;
use crate::guard::Guard;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use crate::operation::Operation;

/// As in `meter.rs`.
#[derive(Debug, Clone)]
pub(crate) struct Meter;

/// As in `meter.rs`.
#[derive(Debug)]
pub(crate) struct Asks<'a>(PhantomData<&'a Meter>);

/// As in `meter.rs`.
#[derive(Debug)]
pub(crate) struct Held;

/// As in `meter.rs`.
#[derive(Debug, Default)]
pub(crate) struct Waiting {}

/// As in `meter.rs`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    Released,
    Lost,
    Left,
}

#[allow(clippy::unused_self, reason = "as in meter.rs")]
impl Meter {
    pub(crate) fn new(_: &Arc<dyn Backend>) -> Self {
        Self
    }

    pub(crate) fn asks(&self, _: &Claim, _: Moment, _: bool) -> Asks<'_> {
        Asks(PhantomData)
    }

    pub(crate) fn holds(&self, _: &Claim) -> Option<Held> {
        None
    }

    pub(crate) fn request<T>(&self, _: Operation, _: &Result<T>) {}

    pub(crate) fn renewal(&self, _: &Claim, _: &Result<Standing>, _: Option<Duration>) {}

    pub(crate) fn tells(&self, _: &Claim, _: &EventKind) {}
}

impl Asks<'_> {
    pub(crate) fn enters_again(&mut self) {}

    pub(crate) fn finish(self, _: &Result<Option<Guard>>) {}

    pub(crate) fn granted(self, _: &Guard) {}

    pub(crate) fn busy(self) {}

    pub(crate) fn failed(self) {}

    pub(crate) fn forget(self) {}
}

impl Held {
    pub(crate) fn end(self, _: End, _: Moment) {}
}

#[allow(clippy::unused_self, reason = "as in meter.rs")]
impl Waiting {
    pub(crate) fn begin(&self, _: &Meter, _: &Claim) {}

    pub(crate) fn end(&self, _: &Meter, _: &Claim) {}
}
