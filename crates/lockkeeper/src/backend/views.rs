//! What one sees of a store: who holds a name and who waits for it.

use super::{FencingToken, Mode, Name, Owner};
use std::fmt;
use std::time::Duration;

/// A name and everyone at it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockView {
    /// The name.
    pub name: Name,
    /// Those who hold it, in the order they were granted it.
    pub holders: Vec<HolderView>,
    /// Those who wait, in the order they will get it where the backend is fair.
    pub waiters: Vec<WaiterView>,
    /// What each node has, where several vote on the name; empty where the store is one.
    pub nodes: Vec<NodeView>,
}

/// Some of the names of a store, and where to go on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// Each with everyone at it.
    pub locks: Vec<LockView>,
    /// What to give as `after` to get the next page; `None` behind the last one. Its form is the
    /// store's own.
    pub next: Option<String>,
}

impl Page {
    /// The most names that are looked up at once.
    pub const MOST: usize = 10_000;

    /// These, and where to go on.
    pub fn new(locks: Vec<LockView>, next: Option<String>) -> Self {
        Self { locks, next }
    }

    /// That part of `all`, which are in order of name, that comes after the name `after`.
    pub(crate) fn of_all(all: Vec<LockView>, after: Option<&str>, limit: usize) -> Self {
        let is_later = |lock: &LockView| after.is_none_or(|after| lock.name.as_str() > after);
        let mut locks: Vec<LockView> =
            all.into_iter().filter(is_later).take(limit.saturating_add(1)).collect();
        let is_last = locks.len() <= limit;
        locks.truncate(limit);
        let next = locks.last().filter(|_| !is_last).map(|lock| lock.name.to_string());
        Self::new(locks, next)
    }
}

/// One node of several that vote on a name, and what it has.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeView {
    /// The node for people, without secrets.
    pub node: String,
    /// Who holds the name at this node.
    pub holders: Vec<HolderView>,
    /// Why the node's vote does not count, or that it does not answer.
    pub objection: Option<String>,
}

impl NodeView {
    /// A node that has nothing; what else is known is filled in.
    pub fn new(node: impl Into<String>) -> Self {
        Self { node: node.into(), holders: Vec::new(), objection: None }
    }
}

/// One owner who holds a name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderView {
    /// The owner's id.
    pub owner: Owner,
    /// The owner for people: `user@host pid 4242`.
    pub identity: String,
    /// What the owner said of the claim.
    pub note: String,
    /// How it is held.
    pub mode: Mode,
    /// The token of the grant.
    pub token: Option<FencingToken>,
    /// How many claims the owner has on the name, by re-entry. Those of one keeper are one where
    /// the store is not told of them ([`Lease::guards_changed`](super::Lease::guards_changed)).
    pub count: usize,
    /// Time since the grant; on etcd and ZooKeeper, which do not write that down, since it was
    /// asked for.
    pub held_for: Duration,
    /// Time until the claim ends unless renewed.
    pub expires_in: Duration,
}

impl HolderView {
    /// Held by `owner` as `mode`; what else is known is filled in.
    pub fn new(owner: Owner, mode: Mode) -> Self {
        Self {
            owner,
            identity: String::new(),
            note: String::new(),
            mode,
            token: None,
            count: 1,
            held_for: Duration::ZERO,
            expires_in: Duration::ZERO,
        }
    }
}

/// One owner who waits for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterView {
    /// The owner's id.
    pub owner: Owner,
    /// The owner for people.
    pub identity: String,
    /// What the owner said of the claim.
    pub note: String,
    /// How it is wanted.
    pub mode: Mode,
    /// Time since it began to wait.
    pub waiting_for: Duration,
}

impl WaiterView {
    /// Wanted by `owner` as `mode`; what else is known is filled in.
    pub fn new(owner: Owner, mode: Mode) -> Self {
        let (identity, note) = (String::new(), String::new());
        Self { owner, identity, note, mode, waiting_for: Duration::ZERO }
    }
}

impl LockView {
    /// `name` with nobody at it; a backend fills in whom it finds.
    pub fn new(name: Name) -> Self {
        Self { name, holders: Vec::new(), waiters: Vec::new(), nodes: Vec::new() }
    }

    /// One line that says who holds the name: `alice@web-1 pid 4242 'backup.sh' for 42s`.
    ///
    /// `None` when nobody does.
    pub fn holders_line(&self) -> Option<String> {
        line_of(&self.holders)
    }

    /// The place of `owner` among the waiters, counted from 1.
    pub fn place_of(&self, owner: &Owner) -> Option<usize> {
        self.waiters.iter().position(|waiter| waiter.owner == *owner).map(|index| index + 1)
    }
}

/// One line that says who holds a name; `None` when nobody does.
pub(crate) fn line_of(holders: &[HolderView]) -> Option<String> {
    let first = holders.first()?;
    let mut line = first.to_string();
    // A store that does not know since when says zero.
    if first.held_for.is_zero()
        && let Some(rest) = line.strip_suffix(" for 0s")
    {
        line.truncate(rest.len());
    }
    if holders.len() > 1 {
        line += &format!(" and {} more", holders.len() - 1);
    }
    Some(line)
}

impl fmt::Display for HolderView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Of one who came by another library, the id is all there is.
        let identity = if self.identity.is_empty() { self.owner.id() } else { &self.identity };
        f.write_str(&in_one_line(identity))?;
        if !self.note.is_empty() {
            write!(f, " '{}'", in_one_line(&self.note))?;
        }
        write!(f, " for {}s", self.held_for.as_secs())
    }
}

/// Text of others, made safe to print: control characters are written out.
fn in_one_line(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    text.chars().map(shown).collect()
}
