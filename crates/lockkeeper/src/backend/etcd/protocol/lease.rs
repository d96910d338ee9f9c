//! Leases: what keys live on (service `Lease`).
//!
//! A lease is granted and revoked through a majority, and written down. Its heartbeats are not:
//! the leader alone counts the time, in memory, and a new leader begins every lease again with its
//! whole length.

use super::kv::ResponseHeader;
use prost::Message;

/// Grants a lease under an id of the client's choice, so that a repeated request grants one.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantRequest {
    /// In seconds.
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
    /// Chosen by the client; zero would leave the choice to etcd.
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

/// The length that was granted, in seconds: at least what was asked for.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    /// In seconds.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

/// Ends a lease, and with it deletes every key on it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

/// Nothing of it is read.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseRevokeResponse {}

/// A heartbeat of a lease: renews it by its whole length.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

/// Answered from the memory of the member that takes itself for the leader: see
/// `ServerLease::keep_alive` for why that is not believed alone.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveResponse {
    /// Filled in before the lease is renewed.
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    /// Zero for a lease that is no more.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

/// Asks how long a lease has left.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseTimeToLiveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

/// How long a lease has left without another heartbeat.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseTimeToLiveResponse {
    /// Seconds left; -1 for a lease that is no more.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}
