//! The connection that messages arrive on.
//!
//! Apart from the one for commands: with RESP3 both could share one, but a long answer would then hold
//! up a message that a waiter depends on, and a message would hold up a renewal.

use redis::aio::MultiplexedConnection;
use redis::cluster_async::ClusterConnection;
use redis::{RedisResult, Value};

/// To one server; or to every node of a cluster, for channels that live on the node of a key
/// (sharded publish and subscribe, Redis 7).
#[derive(Clone)]
pub(super) enum MessageConnection {
    Node(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl MessageConnection {
    /// Subscribes to a channel that can be heard at any node.
    pub(super) async fn subscribe(&mut self, name: &str) -> RedisResult<()> {
        match self {
            Self::Node(connection) => connection.subscribe(name).await,
            Self::Cluster(connection) => connection.subscribe(name).await,
        }
    }

    /// Subscribes to channels that belong to one key: in a cluster, at the node of that key.
    pub(super) async fn subscribe_sharded(&mut self, names: &[String]) -> RedisResult<()> {
        match self {
            Self::Node(connection) => connection.subscribe(names).await,
            Self::Cluster(connection) => connection.ssubscribe(names).await,
        }
    }

    /// Ends what [`subscribe_sharded`](Self::subscribe_sharded) began, for any keys.
    pub(super) async fn unsubscribe_sharded(&mut self, names: &[String]) -> RedisResult<()> {
        match self {
            Self::Node(connection) => connection.unsubscribe(names).await,
            Self::Cluster(connection) => {
                // One by one: they may be on several nodes, and one command reaches one node.
                for name in names {
                    connection.sunsubscribe(name).await?;
                }
                Ok(())
            }
        }
    }

    /// Fails when the server at the other end is gone.
    pub(super) async fn ping(&mut self) -> RedisResult<()> {
        let ping = redis::cmd("PING");
        let answer: RedisResult<Value> = match self {
            Self::Node(connection) => ping.query_async(connection).await,
            Self::Cluster(connection) => ping.query_async(connection).await,
        };
        answer.map(|_| ())
    }
}
