//! `redis://` — Redis and Valkey, version 6.2 or later.
//!
//! | URL | |
//! |---|---|
//! | `redis://[user:password@]host[:6379][/database]` | one server |
//! | `rediss://…` | the same, encrypted |
//! | `redis+sentinel://h1,h2,h3/name[/database]` | the primary of that name, found through sentinels |
//! | `redis+cluster://h1,h2,h3` | a cluster; any of its nodes |
//!
//! | option | |
//! |---|---|
//! | `recipe` | [`queue`] unless said otherwise; [`reentrant`], or one of [`plain`] |
//! | `prefix` | what our keys begin with: `lockkeeper:` for `queue`, nothing for the others |
//! | `timeout` | the longest a connection or an answer is waited for, `2s` |
//! | `barging=true` | newcomers may take a free lock before those who wait (`queue`) |
//! | `replicas=n` | a claim and a renewal count only once n replicas have them |
//! | `allow_eviction=true` | do not refuse a server that may evict locks when it is full |
//! | `tls=true`, `ca`, `cert`, `key` | encryption for the last two URLs; files with certificates |
//! | `sentinel_user`, `sentinel_password` | for the sentinels themselves |
//!
//! # How safe
//! Locks live in Redis and by its clock. They are as durable as Redis is: with `appendonly yes` and
//! `appendfsync always` they survive a crash; otherwise a crash can lose the last ones, and so can a
//! failover to a replica that had not heard of them. `replicas=n` narrows that. A clock that is set
//! forward ends claims early. Whatever happens, tokens grow: they carry the time. So have the
//! resource check them ([`fence`](crate::fence)). One that is more than a day ahead of the server's
//! clock is not believed, wherever it is found, and tokens go by the clock again.
//!
//! After a failover to a replica whoever holds a lock by the word of the old primary has it until
//! its next renewal, and others may get it from the new one. In `queue` a name passes from one claim
//! of a keeper to the next without a request only while the server's last answer on it was asked
//! for less than 50 ms ago and no connection broke since: nobody begins later than that on the word
//! of a server that is primary no more.
//!
//! What a server has on record that nobody of its keeper has any more (restarted from an old
//! snapshot, or a replica that took over) is removed as soon as those who wait notice, mostly
//! within a second; where its keeper does not hear messages just then, it ends with its ttl. In the
//! other recipes it always does.
//!
//! A keeper has two connections, one for commands and one for messages, however many locks it holds
//! or waits for; with `replicas` and in clusters a few more. It finds its way back after restarts,
//! failovers and broken connections by itself.
//!
//! # What the user may do
//! A user for `queue` alone, in the words of Redis' own access lists:
//! `~lockkeeper:* &lockkeeper:* +@read +@write +@scripting +@pubsub +@connection +config|get +role
//! +wait +time +cluster|slots +asking`. The last two are for clusters.
//!
//! From Redis 7 on a right that is missing is named when a keeper connects: as an error of the kind
//! `Denied`, or as a warning where locks still work, only not as well. Sentinels are asked
//! `SENTINEL get-master-addr-by-name` and `SENTINEL master`.
//!
//! Whoever may publish on `lockkeeper:keeper:*` cannot pretend that a lock was granted: a message
//! counts only with the id of a claim, which nobody but the server and its keeper knows before.
//! But it can pretend that one was broken, and the holder stops. So give these channels to the users
//! of the locks alone, and the others `resetchannels`, which is what users get by default from
//! Redis 7 on, or with `acl-pubsub-default resetchannels`.
//!
//! # Sentinels and clusters
//! Name all sentinels: more than half of those in the URL must answer before a connection is made,
//! and the primary of the latest failover that they tell of is the one that counts. A sentinel that
//! is cut off and still names the one of before is so outvoted. Every few seconds they are asked
//! again; when too few answer, a connection that is there is kept.
//!
//! A keeper of a cluster has a connection to each node that has locks of its, and a node that is
//! silent costs the locks on it alone. The nodes that the cluster tells of are remembered, so that
//! one host in the URL is enough to begin with. While a slot is moved from one node to another, locks
//! in it are renewed and given back; those that wait get their turn when their lock has moved.

mod client;
mod error;
mod eviction;
mod getset;
mod keys;
mod options;
mod queue;
mod reentrant;
mod rights;
mod sequence;
mod set_nx_px;
mod setnx_expire;
mod single_key;
mod value;

use crate::backend::Backend;
use crate::background::Background;
use crate::claim::ClaimIds;
use crate::error::Result;
pub use client::Topology;
use client::{Client, Connector};
pub use options::{RedisOptions, RedisRecipe};
use single_key::SingleKeys;
use std::sync::Arc;

/// Opens the recipe that the options name.
async fn open(options: RedisOptions, background: &Background) -> Result<Arc<dyn Backend>> {
    let (url, prefix) = (options.shown(), options.prefix_or_default());
    let connect = options.connect_options(background);
    let connector = Connector::new(options.topology.clone(), connect, url.clone());
    let client = Client::new(connector, options.replicas);
    eviction::check(&client, options.allow_eviction).await?;
    match options.recipe {
        RedisRecipe::Queue => {
            let (keeper, barging) = (ClaimIds::new()?.next().to_string(), options.barging);
            let settings = queue::Settings { prefix, keeper, barging, url };
            Ok(Arc::new(queue::Queue::open(client, settings).await?))
        }
        RedisRecipe::Reentrant => {
            let clustered = client.connector.is_cluster();
            let keeper = ClaimIds::new()?.next().to_string();
            let settings = reentrant::Settings { prefix, keeper, clustered, url };
            Ok(Arc::new(reentrant::Reentrant::open(client, settings).await?))
        }
        recipe => Ok(single(recipe, SingleKeys { client, prefix, url })),
    }
}

/// Opens one of the recipes with a single key.
fn single(recipe: RedisRecipe, keys: SingleKeys) -> Arc<dyn Backend> {
    let keys = Arc::new(keys);
    match recipe {
        RedisRecipe::SetnxExpire => Arc::new(setnx_expire::SetnxExpire::open(keys)),
        RedisRecipe::GetSet => Arc::new(getset::GetSet::open(keys)),
        _ => Arc::new(set_nx_px::SetNxPx::open(keys)),
    }
}

/// Which life the server is in: its run id; all of them, in a cluster.
async fn incarnation(client: &Client) -> Result<Option<String>> {
    let ids = client.run_ids().await?;
    Ok((!ids.is_empty()).then(|| ids.join(" ")))
}
