//! What a store shows, as `serde` writes it: the JSON of the command line. Its field names are an
//! interface: add, never rename.

use crate::backend::{HolderView, LockView, NodeView, WaiterView};
use crate::claim::Mode;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use std::time::Duration;

impl Serialize for LockView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut view = serializer.serialize_struct("LockView", 4)?;
        view.serialize_field("name", self.name.as_str())?;
        view.serialize_field("holders", &self.holders)?;
        let waiters = self.waiters.iter().enumerate();
        let placed: Vec<_> = waiters.map(|(index, it)| Placed { place: index + 1, it }).collect();
        view.serialize_field("waiters", &placed)?;
        match self.nodes.is_empty() {
            true => view.skip_field("nodes")?,
            false => view.serialize_field("nodes", &self.nodes)?,
        }
        view.end()
    }
}

impl Serialize for NodeView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut view = serializer.serialize_struct("NodeView", 3)?;
        view.serialize_field("node", &self.node)?;
        view.serialize_field("holders", &self.holders)?;
        view.serialize_field("objection", &self.objection)?;
        view.end()
    }
}

impl Serialize for HolderView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut view = serializer.serialize_struct("HolderView", 9)?;
        view.serialize_field("owner", self.owner.id())?;
        view.serialize_field("identity", &self.identity)?;
        view.serialize_field("note", &self.note)?;
        mode(&mut view, self.mode)?;
        view.serialize_field("token", &self.token.map(|token| token.get()))?;
        view.serialize_field("count", &self.count)?;
        view.serialize_field("held_ms", &millis(self.held_for))?;
        view.serialize_field("expires_ms", &millis(self.expires_in))?;
        view.end()
    }
}

/// A waiter and its place, counted from 1.
struct Placed<'a> {
    place: usize,
    it: &'a WaiterView,
}

impl Serialize for Placed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut view = serializer.serialize_struct("WaiterView", 7)?;
        view.serialize_field("owner", self.it.owner.id())?;
        view.serialize_field("identity", &self.it.identity)?;
        view.serialize_field("note", &self.it.note)?;
        mode(&mut view, self.it.mode)?;
        view.serialize_field("waiting_ms", &millis(self.it.waiting_for))?;
        view.serialize_field("place", &self.place)?;
        view.end()
    }
}

/// The mode as one word, and the number of permits where there are some.
fn mode<S: SerializeStruct>(view: &mut S, mode: Mode) -> Result<(), S::Error> {
    let (word, permits) = match mode {
        Mode::Exclusive => ("exclusive", None),
        Mode::Shared => ("shared", None),
        Mode::Permit { of } => ("permit", Some(of)),
    };
    view.serialize_field("mode", word)?;
    match permits {
        Some(permits) => view.serialize_field("permits", &permits),
        None => view.skip_field("permits"),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
