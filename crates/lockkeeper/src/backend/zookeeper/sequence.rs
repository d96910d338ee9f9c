//! Numbers that nobody else gets, and small records: a persistent node for each.
//!
//! A node is read behind a `sync`, what is to be written is decided here, and it is written if the
//! node still has the same version. A write whose answer was lost is not repeated, and its numbers are
//! given to nobody: there may be gaps, and never a number twice.
//!
//! The time is the leader's: it stamps every write, so a node is written and its stamp read.

use super::client::{Failure, NodeKind, Request, refusal};
use super::context::Context;
use super::keys;
use super::lock_node;
use super::session::Session;
use crate::backend::support::contended::{Gates, TRIES, pause, restless};
use crate::backend::{Name, Reserve, Reserved, check_record};
use crate::error::{Error, ErrorKind, Result};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a node says, and its version.
struct Found {
    says: String,
    version: i32,
}

/// A node, and the session it is asked in.
struct Node<'a> {
    context: &'a Context,
    session: &'a Session,
    path: String,
}

/// As [`Sequencer::reserve`](crate::backend::Sequencer::reserve).
pub(super) async fn reserve(
    context: &Context,
    gates: &Gates,
    name: &Name,
    wish: &Reserve,
) -> Result<Reserved> {
    let _gate = gates.enter(name.as_str()).await;
    let session = &*context.session().await?;
    let node = Node { context, session, path: keys::sequence_path(&context.root, name) };
    for tries in 0..TRIES {
        let found = node.read().await?;
        let count = |found: &Found| found.says.parse().map_err(|_| node.foreign());
        let reserved = Reserved::of(found.as_ref().map(count).transpose()?, wish);
        let Reserved::From(first) = reserved else { return Ok(reserved) };
        let last = (first + u64::from(wish.count.max(1)) - 1).to_string();
        if node.write(&last, found).await? {
            return Ok(reserved);
        }
        pause(tries).await;
    }
    Err(restless(name.as_str()))
}

pub(super) async fn read(context: &Context, name: &Name) -> Result<Option<String>> {
    let session = context.session().await?;
    Ok(record(context, &session, name).read().await?.map(|found| found.says))
}

/// As [`Sequencer::write`](crate::backend::Sequencer::write).
pub(super) async fn write(
    context: &Context,
    name: &Name,
    value: &str,
    expected: Option<&str>,
) -> Result<bool> {
    check_record(value)?;
    let session = context.session().await?;
    let node = record(context, &session, name);
    for tries in 0..TRIES {
        let found = node.read().await?;
        if found.as_ref().map(|found| found.says.as_str()) != expected {
            return Ok(false);
        }
        if node.write(value, found).await? {
            return Ok(true);
        }
        // Written by another meanwhile, who may have written the same: look again.
        pause(tries).await;
    }
    Err(restless(name.as_str()))
}

/// All records whose names begin with `prefix`. Their nodes are read at once, behind a listing that is
/// no older than the call.
pub(super) async fn list(context: &Context, prefix: &str) -> Result<Vec<(Name, String)>> {
    let session = context.session().await?;
    let explain = |failure: Failure| context.explain(&failure);
    let top = keys::records_path(&context.root);
    let children = match session.call_synced(&top, Request::children(&top)).await {
        Ok(answer) => answer.children().map_err(explain)?,
        Err(failure) if failure.is(refusal::NO_NODE) => Vec::new(),
        Err(failure) => return Err(explain(failure)),
    };
    let names = children.iter().filter_map(|element| keys::name_of(element));
    let mut names: Vec<Name> = names.filter(|name| name.as_str().starts_with(prefix)).collect();
    names.sort();
    let node = |name: &Name| Request::data(&keys::path_of(&top, name), false);
    let coming = session.send_all(names.iter().map(node).collect::<Vec<_>>());
    let mut records = Vec::with_capacity(names.len());
    for (name, coming) in names.into_iter().zip(coming) {
        match session.answer(coming).await.and_then(|answer| answer.data()) {
            Ok((data, _)) => records.push((name, String::from_utf8_lossy(&data).into_owned())),
            Err(failure) if failure.is(refusal::NO_NODE) => {}
            Err(failure) => return Err(explain(failure)),
        }
    }
    Ok(records)
}

/// What the leader's clock says, in whole milliseconds.
pub(super) async fn time(context: &Context) -> Result<Option<SystemTime>> {
    let session = &*context.session().await?;
    let node = Node { context, session, path: keys::clock_path(&context.root) };
    for tries in 0..TRIES {
        let written = session.call(Request::write(&node.path, &[])).await;
        let stat = match written.and_then(|answer| answer.stat()) {
            Ok(stat) => stat,
            Err(failure) if failure.is(refusal::NO_NODE) => {
                node.create(&[]).await?;
                pause(tries).await;
                continue;
            }
            Err(failure) => return Err(context.explain(&failure)),
        };
        let since = Duration::from_millis(u64::try_from(stat.mtime).unwrap_or_default());
        return Ok(UNIX_EPOCH.checked_add(since));
    }
    Err(restless(&node.path))
}

/// The node of a record.
fn record<'a>(context: &'a Context, session: &'a Session, name: &Name) -> Node<'a> {
    let path = keys::path_of(&keys::records_path(&context.root), name);
    Node { context, session, path }
}

impl Node<'_> {
    /// What the node says, no older than the call.
    async fn read(&self) -> Result<Option<Found>> {
        let read = self.session.call_synced(&self.path, Request::data(&self.path, false)).await;
        let (data, stat) = match read.and_then(|answer| answer.data()) {
            Ok(read) => read,
            Err(failure) if failure.is(refusal::NO_NODE) => return Ok(None),
            Err(failure) => return Err(self.context.explain(&failure)),
        };
        let says = String::from_utf8(data).map_err(|_| self.foreign())?;
        Ok(Some(Found { says, version: stat.version }))
    }

    /// Writes the node if it is as it was found; whether it did.
    ///
    /// # Errors
    /// What the store said. After [`ErrorKind::Unavailable`] it is not known whether it was written.
    async fn write(&self, says: &str, found: Option<Found>) -> Result<bool> {
        let Some(found) = found else { return self.create(says.as_bytes()).await };
        // In the place of a version, this stands for any.
        if found.version == -1 {
            let message = "was written 2^32 times: write the same to it once more by hand";
            return Err(Error::new(ErrorKind::Store, format!("{} {message}", self.path)));
        }
        let request = Request::replace(&self.path, says.as_bytes(), found.version);
        match self.session.call_once(request).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.is(refusal::BAD_VERSION) => Ok(false),
            Err(failure) if failure.is(refusal::NO_NODE) => Ok(false),
            Err(failure) => Err(self.context.explain(&failure)),
        }
    }

    /// Creates the node; `false` if there is one, or if there was nothing to create it below, which is
    /// then created.
    async fn create(&self, data: &[u8]) -> Result<bool> {
        let access = self.context.access;
        let create = Request::create(&self.path, data, NodeKind::Persistent, access);
        match self.session.call_once(create).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.is(refusal::NODE_EXISTS) => Ok(false),
            Err(failure) if failure.is(refusal::NO_NODE) => {
                if let Some(above) = keys::ancestors(&self.path).last() {
                    let made = lock_node::create(self.session, above, access).await;
                    made.map_err(|failure| self.context.explain(&failure))?;
                }
                Ok(false)
            }
            Err(failure) => Err(self.context.explain(&failure)),
        }
    }

    /// The error for a node that we did not write.
    fn foreign(&self) -> Error {
        let message = format!("{:?} is not ours: is the node used otherwise?", self.path);
        Error::new(ErrorKind::Store, message)
    }
}
