//! What can be asked of the tables beside locks: numbers, records, the clock.

use super::super::error::Failure;
use async_trait::async_trait;

/// What the row of a sequence begins with; its name follows, and the last number is in `last`.
pub(in super::super) const SEQUENCE_ROW: &str = "\u{1}sequence/";
/// What the row of a record begins with; its name follows, and what it says is in `note`.
pub(in super::super) const RECORD_ROW: &str = "\u{1}record/";
/// What no row of a record reaches: the first text behind all that begin with [`RECORD_ROW`].
pub(in super::super) const BEHIND_RECORDS: &str = "\u{1}record0";

/// How a count is moved on.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Step {
    /// By how much.
    pub(in super::super) count: i64,
    /// Up to where at least.
    pub(in super::super) least: i64,
    /// Only if it is at most here, so that there is room for it.
    pub(in super::super) room: i64,
    /// Only if it was begun.
    pub(in super::super) existing: bool,
}

/// One kind of server. All but `write_record` may be repeated: at worst that leaves a gap.
#[async_trait]
pub(in super::super) trait Numbers {
    /// Moves the count of a sequence on; up to where, or `None` if nothing was changed.
    async fn reserve(&self, name: &str, step: Step) -> Result<Option<i64>, Failure>;

    /// The last number of a sequence.
    async fn last_number(&self, name: &str) -> Result<Option<i64>, Failure>;

    async fn read_record(&self, name: &str) -> Result<Option<String>, Failure>;

    /// Writes a record if it says `expected`, or is absent; whether it did. Not repeated.
    async fn write_record(
        &self,
        name: &str,
        value: &str,
        expected: Option<&str>,
    ) -> Result<bool, Failure>;

    /// The records whose names begin with `prefix`, in order.
    async fn list_records(&self, prefix: &str) -> Result<Vec<(String, String)>, Failure>;

    /// The database's clock, in microseconds since 1970.
    async fn time(&self) -> Result<i64, Failure>;

    /// Numbers of the auto-increment column.
    async fn auto_increment(&self, count: u32) -> Result<Vec<i64>, Failure>;

    /// Makes the table with that column.
    async fn make_ids(&self) -> Result<(), Failure>;

    /// What an administrator runs to make it.
    fn ids_script(&self) -> String;
}
