//! Watches: what happens to keys, as it happens (service `Watch`).
//!
//! One stream carries any number of watches. A member tells what it has carried out itself, so a
//! member that is cut off goes silent without an error: a watch is a hint to look, never a proof.

use super::kv::{KeyValue, ResponseHeader};
use prost::{Enumeration, Message, Oneof};

/// One order on the stream that all watches of a keeper share.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchRequest {
    #[prost(oneof = "WatchOrder", tags = "1, 2")]
    pub(crate) order: Option<WatchOrder>,
}

/// Begins a watch, or ends one.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum WatchOrder {
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
    #[prost(message, tag = "2")]
    Cancel(WatchCancelRequest),
}

/// Begins a watch of one key under a number of the client's choice; from now on where
/// `start_revision` is zero.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    /// Everything from this revision on. A watch from the past is served from a queue that etcd
    /// works off every 100 ms; one from now on is told at once.
    #[prost(int64, tag = "3")]
    pub(crate) start_revision: i64,
    /// What not to tell.
    #[prost(enumeration = "WatchFilter", repeated, tag = "5")]
    pub(crate) filters: Vec<i32>,
    /// Chosen by the client, unique on its stream.
    #[prost(int64, tag = "7")]
    pub(crate) watch_id: i64,
}

/// Which events a watch leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub(crate) enum WatchFilter {
    /// Tells of deletions only.
    NoPut = 0,
    NoDelete = 1,
}

/// Ends the watch with this number.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchCancelRequest {
    #[prost(int64, tag = "1")]
    pub(crate) watch_id: i64,
}

/// Says that a watch began, that it ended, or what happened to its key.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub(crate) watch_id: i64,
    /// The watch began, behind the revision of the header.
    #[prost(bool, tag = "3")]
    pub(crate) created: bool,
    /// The watch ended, whether asked for or not.
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    /// Not zero when the watch was to start at a revision that is compacted.
    #[prost(int64, tag = "5")]
    pub(crate) compact_revision: i64,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

/// What happened to a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub(crate) enum EventType {
    Put = 0,
    /// Deleted, or gone with its lease.
    Delete = 1,
}

/// One change of a key, with the key as it is afterwards.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Event {
    #[prost(enumeration = "EventType", tag = "1")]
    pub(crate) kind: i32,
    /// For a deletion, only the key and the revision at which it went.
    #[prost(message, optional, tag = "2")]
    pub(crate) kv: Option<KeyValue>,
}
