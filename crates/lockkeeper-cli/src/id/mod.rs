//! `id`: ids that nobody else gets.
#![allow(
    clippy::future_not_send,
    reason = "the output is locked by one thread, on which a command runs"
)]

pub(crate) mod arguments;
mod bench;
mod give;
mod lines;
mod list;
mod tell;
mod terms;

use crate::exit::Failure;
use arguments::IdVerb;
use lockkeeper::id::{Kind, Ulids, Uuid4, Uuid7};

pub(crate) async fn obey(verb: &IdVerb) -> Result<u8, Failure> {
    match verb {
        IdVerb::Uuid4(amount) => give::without_store(&Uuid4, amount).await,
        IdVerb::Uuid7(amount) => give::without_store(&Uuid7, amount).await,
        IdVerb::Ulid(amount) => give::without_store(&Ulids::default(), amount).await,
        IdVerb::Sequence(asked) => give::count(asked, Kind::Sequence).await,
        IdVerb::Segment(asked) => give::count(asked, Kind::Segment).await,
        IdVerb::AutoIncrement(asked) => give::auto_increment(asked).await,
        IdVerb::Snowflake(asked) => give::snowflake(asked).await,
        IdVerb::Dated(asked) => give::dated(asked).await,
        IdVerb::Striped(asked) => give::striped(asked).await,
        IdVerb::Next(asked) => give::next(asked).await,
        IdVerb::Inspect(asked) => tell::inspect(asked).await,
        IdVerb::Range(asked) => tell::range(asked).await,
        IdVerb::Workers(asked) => list::workers(asked).await,
        IdVerb::Keys(asked) => list::keys(asked).await,
        IdVerb::Bench(asked) => bench::bench(asked).await,
    }
}
