//! The two lock-free parts that hand out ids: [`ticks`] by the clock, [`cursor`] from reserved ranges.
//!
//! Both are generic over their atomic word and use nothing else of this crate, so that the models of
//! `lockkeeper-model` include these very files and try every order of their steps.

pub(crate) mod cursor;
pub(crate) mod ticks;
pub(crate) mod word;
