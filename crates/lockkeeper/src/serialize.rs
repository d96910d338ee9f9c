//! What a store shows, as `serde` writes it: the JSON of the command line. Its field names are an
//! interface: add, never rename.

use crate::backend::{HolderView, LockView, NodeView, Page, Ticket, WaiterView};
use crate::claim::{ClaimId, FencingToken, Mode, Owner};
use crate::name::Name;
use serde::de::{Deserialize, Deserializer, Error as _};
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

/// What is written as its text, and checked when it is read.
macro_rules! as_text {
    ($($value:ident: $read:expr),*) => {$(
        impl Serialize for $value {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $value {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
                $read(&text).map_err(D::Error::custom)
            }
        }
    )*};
}
as_text!(Ticket: str::parse::<Ticket>, Name: Name::new, Owner: Owner::new, ClaimId: str::parse::<ClaimId>);

/// As a number.
impl Serialize for FencingToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.get())
    }
}

impl<'de> Deserialize<'de> for FencingToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer)?.try_into().map_err(D::Error::custom)
    }
}

impl Serialize for Page {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut page = serializer.serialize_struct("Page", 2)?;
        page.serialize_field("locks", &self.locks)?;
        page.serialize_field("next", &self.next)?;
        page.end()
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
        view.serialize_field("token", &self.token)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back<T>(value: &T, text: &str)
    where
        T: Serialize + for<'de> Deserialize<'de> + PartialEq + std::fmt::Debug,
    {
        assert_eq!(serde_json::to_string(value).unwrap(), text);
        assert_eq!(&serde_json::from_str::<T>(text).unwrap(), value);
    }

    #[test]
    fn values_are_text_or_a_number_and_come_back() {
        there_and_back(&FencingToken::new(1024).unwrap(), "1024");
        there_and_back(&Name::new("库存/\"7\"").unwrap(), r#""库存/\"7\"""#);
        there_and_back(&Owner::new("billing-1").unwrap(), r#""billing-1""#);
        let id: ClaimId = "00112233445566778899aabbccddeeff".parse().unwrap();
        there_and_back(&id, r#""00112233445566778899aabbccddeeff""#);
    }

    #[test]
    fn what_is_not_valid_is_refused_when_it_is_read() {
        assert!(serde_json::from_str::<FencingToken>("0").is_err());
        assert!(serde_json::from_str::<FencingToken>("-1").is_err());
        assert!(serde_json::from_str::<Name>(r#""two\nlines""#).is_err());
        assert!(serde_json::from_str::<Owner>(r#""""#).is_err());
        assert!(serde_json::from_str::<ClaimId>(r#""1""#).is_err());
    }
}
