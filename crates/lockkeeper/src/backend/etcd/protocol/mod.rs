//! The messages of etcd's gRPC interface that locks need, written out by hand.
//!
//! Names, field numbers and types are those of etcd's interface description (rpc.proto, kv.proto
//! and auth.proto of version 3.4, which later versions only add to). Fields we never look at are
//! left out; prost skips what it does not know. Generated code would be thirty times as long,
//! and need protoc to be made again.

mod cluster;
mod kv;
mod lease;
mod watch;

pub(super) use cluster::*;
pub(super) use kv::*;
pub(super) use lease::*;
use prost::Message;
pub(super) use watch::*;

/// Where each method is called: `/package.Service/Method`, as gRPC spells it.
pub(super) mod path {
    pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";
    pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";
    pub(crate) const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
    pub(crate) const LEASE_REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
    pub(crate) const LEASE_KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
    pub(crate) const LEASE_TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
    pub(crate) const WATCH: &str = "/etcdserverpb.Watch/Watch";
    pub(crate) const STATUS: &str = "/etcdserverpb.Maintenance/Status";
    pub(crate) const MEMBER_LIST: &str = "/etcdserverpb.Cluster/MemberList";
    pub(crate) const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";
}

/// Logs in. etcd makes the check of a password slow on purpose.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

/// The token that goes with every further request.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}
