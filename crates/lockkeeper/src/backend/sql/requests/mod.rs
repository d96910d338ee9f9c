//! What can be asked of the tables: every atomic request, one function each, answers parsed.
//!
//! The three requests of a lock that nobody else wants ([`take`](Requests::take),
//! [`extend`](Requests::extend), [`free`](Requests::free)) are one statement on one row each. So are,
//! on the rows of one name, those that come with every turn where many wait
//! ([`join`](Requests::join), [`hand_on`](Requests::hand_on), [`confirm`](Requests::confirm)).
//! Everything else is [`read`](Requests::read), a decision in [`queue`](super::queue), and
//! [`apply`](Requests::apply): one statement again, or one transaction in one round trip, which
//! does nothing if the name changed in between. So no transaction stays open while a client thinks.
//!
//! Not stored functions, which could decide in the server: a user that may only read and write two
//! tables could not use them everywhere, and two versions of this library could not share them.

mod known;
#[cfg(feature = "mysql")]
mod mysql;
mod numbers;
#[cfg(feature = "postgres")]
mod postgres;

#[cfg(feature = "postgres")]
pub(super) use known::KnownNames;
#[cfg(feature = "mysql")]
pub(super) use mysql::MysqlRequests;
pub(super) use numbers::{Numbers, Step};
#[cfg(feature = "postgres")]
pub(super) use postgres::PostgresRequests;

use super::checkup::Examined;
use super::error::Failure;
use super::queue::{Change, Queue, Version};
use super::record::{Record, Seen};
use crate::backend::Claim;
use crate::error::Result;
use async_trait::async_trait;
use std::any::Any;
use std::fmt;
use std::time::Duration;
use tokio::sync::mpsc;

/// What the row of a keeper's heartbeat begins with; its id follows.
pub(super) const PROCESS_ROW: &str = "\u{1}process/";
/// The row of the second table whose token is above those of all names that were cleaned away.
pub(super) const FLOOR_ROW: &str = "\u{1}floor";

/// The row that says which server takes the writes, and since when, where there are two.
pub(super) const WRITER_ROW: &str = "\u{1}writer";

/// A claim, its name, and whether its process lives.
pub(super) type Listed = (String, Record, bool);

/// Who was let in by a release.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) seen: Seen,
    /// A claim of the keeper that asked: it holds, and has to be told. Another's has to confirm.
    pub(super) ours: bool,
}

/// A claim that the tables say was granted.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) id: String,
    /// By another keeper, and not confirmed. Else this keeper granted it itself.
    pub(super) handed: bool,
}

/// A place in the queue of a name.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) ticket: i64,
    /// Counted from 1.
    pub(super) place: i64,
    /// Until the one claim before it expires, in microseconds, unless that is renewed. Not known where
    /// there are several.
    pub(super) until_expiry: Option<i64>,
}

/// One kind of server. All but `take`, `join` and `hand_on` are idempotent.
#[async_trait]
pub(super) trait Requests: Numbers + fmt::Debug + Send + Sync {
    /// The URL without its secrets.
    fn shown(&self) -> &str;

    /// The server, to be asked how it is.
    fn server(&self) -> &dyn Examined;

    /// Takes a name that is free, or whose only claim expired; its token, or `None` if others are
    /// there.
    async fn take(&self, claim: &Claim, process: &str) -> Result<Option<i64>, Failure>;

    /// Frees a name whose only claim is this; whether it was.
    async fn free(&self, name: &str, id: &str) -> Result<bool, Failure>;

    /// Extends the only claim of a name; whether it was that and had not expired.
    async fn extend(&self, name: &str, id: &str, ttl: i64) -> Result<bool, Failure>;

    /// Makes a claim that was handed over a held one; whether it was there and had not expired.
    async fn confirm(&self, name: &str, id: &str, ticket: i64) -> Result<bool, Failure>;

    /// Puts the claim behind those who wait for its name, or behind the one claim on it that keeps this
    /// one out. `None` where it must be decided who holds: the name is free, nobody waits for it, or the
    /// claim fits beside the holder or may have its owner.
    ///
    /// The claim goes by what is in the row of the name at that moment and by no version, so that any
    /// number of keepers do this at once, and none of them in vain. By [`read`](Self::read) and
    /// [`apply`](Self::apply) only one of them would get through at a time, while all others read the
    /// queue again; and none, while a holder takes and frees the name in quick succession.
    async fn join(&self, claim: &Claim, process: &str) -> Result<Option<Joined>, Failure>;

    /// The queue of a name, with the claim of this id wherever it stands; `None` for a name that
    /// has no row.
    async fn read(&self, process: &str, name: &str, id: &str) -> Result<Option<Queue>, Failure>;

    /// Carries out a change if the name still has this version; whether it did.
    async fn apply(&self, name: &str, version: Version, change: &Change) -> Result<bool, Failure>;

    /// Gives back a claim that alone holds a name, and lets the first of those in who wait for it: who
    /// that is. `None`, and nothing is changed, where more is to be decided: the claim is not held any
    /// more, it holds beside others, nobody waits, or the first who waits is dead or not exclusive, so
    /// that others may fit beside it.
    ///
    /// Who steps in at the end of the queue meanwhile does not matter to it.
    async fn hand_on(&self, name: &str, id: &str, process: &str) -> Result<Option<Next>, Failure>;

    /// The heartbeat of a keeper; since when, by the database's clock, none was late.
    async fn beat(&self, process: &str) -> Result<i64, Failure>;

    /// Forgets a keeper.
    async fn end(&self, process: &str) -> Result<(), Failure>;

    /// Claims of this keeper on these names that were granted.
    async fn granted(&self, process: &str, names: &[String]) -> Result<Vec<Told>, Failure>;

    /// Claims of this keeper on this name, whatever became of them: their ids.
    async fn claims_of(&self, process: &str, name: &str) -> Result<Vec<String>, Failure>;

    /// Claims of this keeper that were broken: name, id and reason.
    async fn broken(&self, process: &str) -> Result<Vec<(String, String, String)>, Failure>;

    /// All claims on the names from `first` to `last`, both included; with the database's clock.
    async fn list(&self, first: &str, last: &str) -> Result<(i64, Vec<Listed>), Failure>;

    /// The first `limit` names of those, after the name `after`, that have claims; in order.
    async fn names(
        &self,
        range: [&str; 2],
        after: &str,
        limit: i64,
    ) -> Result<Vec<String>, Failure>;

    /// Raises the floor above the tokens of names unused for `unused` microseconds.
    async fn raise_floor(&self, unused: i64) -> Result<(), Failure>;

    /// Deletes rows unused for so long, whose tokens are below the floor; names with several claims
    /// that nobody has touched for so long.
    async fn sweep(&self, unused: i64) -> Result<Vec<String>, Failure>;

    /// Which life the server is in, where it can tell.
    async fn incarnation(&self) -> Result<Option<String>, Failure>;

    /// Refuses a user whom a server that was made read-only would not stop from writing: with two
    /// servers, such a one could go on at the old while others are granted at the new.
    async fn check_bound(&self) -> Result<()> {
        Ok(())
    }

    /// Writes down that this server is the one that takes writes, unless it is known to be; since
    /// how long it is. With `always`, for ever, where nobody has written that down before.
    async fn enter(&self, always: bool) -> Result<Duration, Failure>;

    /// A subscription to what other keepers tell this one, where there is such a thing.
    async fn listen(&self, process: &str) -> Result<Option<Listening>, Failure>;

    /// Whether keepers are told what others hand to them.
    fn can_listen(&self) -> bool;

    /// Makes the tables if they are not there, and checks them.
    async fn prepare(&self) -> Result<()>;

    /// Lets go of connections that are not in use.
    fn disconnect(&self);
}

/// What other keepers tell this one; ends with its connection.
pub(super) struct Listening {
    pub(super) messages: mpsc::UnboundedReceiver<String>,
    /// What must stay open for it.
    pub(super) _connection: Box<dyn Any + Send + Sync>,
}
