//! How the cluster is: the services `Maintenance` and `Cluster`.

use prost::Message;

/// Asks the member that answers how it is.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusRequest {}

/// How it is.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusResponse {
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    /// In bytes.
    #[prost(int64, tag = "3")]
    pub(crate) db_size: i64,
    /// The leader's id; zero when there is none.
    #[prost(uint64, tag = "4")]
    pub(crate) leader: u64,
    /// Alarms, and what else is wrong.
    #[prost(string, repeated, tag = "8")]
    pub(crate) errors: Vec<String>,
}

/// Asks who belongs to the cluster.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct MemberListRequest {
    /// Through a majority, and not from the memory of the member that is asked.
    #[prost(bool, tag = "1")]
    pub(crate) linearizable: bool,
}

/// All of them.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct MemberListResponse {
    #[prost(message, repeated, tag = "2")]
    pub(crate) members: Vec<Member>,
}

/// One of them.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Member {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    /// It follows, and has no vote.
    #[prost(bool, tag = "5")]
    pub(crate) is_learner: bool,
}
