//! Keys: ranges, writes and transactions (service `KV`).
//!
//! etcd numbers every change of the whole store with one *revision*, which never goes back. A
//! transaction is carried out at one revision, whatever number of keys it changes.

use prost::{Enumeration, Message, Oneof};

/// Stands in front of every answer: what the member that answers has carried out.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ResponseHeader {
    /// The revision of the whole store when the request was carried out.
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
    /// The term of the last entry that the member which answers has carried out.
    #[prost(uint64, tag = "4")]
    pub(crate) raft_term: u64,
}

/// A key as it is stored. A key that was deleted and created again has a new `create_revision`:
/// that is what tells two claims with the same key apart.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    /// The revision at which the key was created, after it was last deleted.
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
    /// The revision of its last change; for a deletion, of the deletion.
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
    /// The lease that the key lives on; zero for none.
    #[prost(int64, tag = "6")]
    pub(crate) lease: i64,
}

/// Whether and how a range is sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub(crate) enum SortOrder {
    None = 0,
    Ascend = 1,
    Descend = 2,
}

/// What a range is sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub(crate) enum SortTarget {
    Key = 0,
    Version = 1,
    /// By create revision: the order of the queue.
    Create = 2,
}

/// Read linearizably unless `serializable` is set, which we never do.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    /// The first key behind the range; empty for a single key.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    /// How many keys to return at most; zero for all.
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    /// As it was then; zero for now.
    #[prost(int64, tag = "4")]
    pub(crate) revision: i64,
    #[prost(enumeration = "SortOrder", tag = "5")]
    pub(crate) sort_order: i32,
    #[prost(enumeration = "SortTarget", tag = "6")]
    pub(crate) sort_target: i32,
    /// Leaves out the values.
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
    /// Leaves out keys that were created before; zero for none.
    #[prost(int64, tag = "12")]
    pub(crate) min_create_revision: i64,
    /// Leaves out keys that were created later; zero for none.
    #[prost(int64, tag = "13")]
    pub(crate) max_create_revision: i64,
}

/// The keys of a range, and the revision they were read at.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
    /// How many keys the range has, limits and bounds on revisions aside.
    #[prost(int64, tag = "4")]
    pub(crate) count: i64,
}

/// Writes a key; only ever sent inside a transaction.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    /// The lease that the key is to live on. The request fails when that is gone.
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
    /// Keeps the lease that the key has.
    #[prost(bool, tag = "6")]
    pub(crate) ignore_lease: bool,
}

/// Nothing of it is read: the transaction says whether it was carried out.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutResponse {}

/// Deletes one key; only ever sent inside a transaction.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
}

/// How many keys went.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRangeResponse {
    #[prost(int64, tag = "2")]
    pub(crate) deleted: i64,
}

/// One step of a transaction.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2, 3, 4")]
    pub(crate) request: Option<Request>,
}

/// What a step of a transaction does.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
    /// On a condition of its own. How that came out is not read.
    #[prost(message, tag = "4")]
    Txn(TxnRequest),
}

/// The answer to one step of a transaction, in the order of the steps.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseOp {
    #[prost(oneof = "Response", tags = "1, 2, 3")]
    pub(crate) response: Option<Response>,
}

/// What a step of a transaction did.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Response {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeResponse),
}

/// How a comparison must come out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub(crate) enum CompareResult {
    Equal = 0,
    Greater = 1,
    Less = 2,
}

/// Which property of the key is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub(crate) enum CompareTarget {
    Version = 0,
    Create = 1,
    Mod = 2,
    Value = 3,
    Lease = 4,
}

/// One condition of a transaction; the transaction succeeds when all of them hold.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compare {
    #[prost(enumeration = "CompareResult", tag = "1")]
    pub(crate) result: i32,
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub(crate) target: i32,
    /// The key, or the first key of the range.
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    /// Where there is none, the comparison is with zero.
    #[prost(oneof = "Target", tags = "5, 7, 8")]
    pub(crate) against: Option<Target>,
    /// Every key of the range must compare so; one that has none compares as zero.
    #[prost(bytes = "vec", tag = "64")]
    pub(crate) range_end: Vec<u8>,
}

/// What the key is compared with. A key that is not there has the create revision 0.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Target {
    /// Whose key it is, or that there is none.
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    /// What is in the key.
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
    /// What the key lives on.
    #[prost(int64, tag = "8")]
    Lease(i64),
}

/// An atomic transaction: the steps of `success` if every comparison holds, else those of
/// `failure`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnRequest {
    /// All of them must hold.
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

/// Which of the two lists of steps was carried out, and the answers to its steps.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    /// Whether the steps of `success` were carried out.
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    /// The answers to the steps that were carried out.
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}
