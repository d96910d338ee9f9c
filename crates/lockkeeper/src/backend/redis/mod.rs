#![doc = include_str!("../../../docs/redis.md")]
//!
//! # Where things are
//! ```text
//!   options.rs     what a URL or a RedisOptions says
//!   client/        commands, scripts and messages, for one server, sentinels or a cluster
//!   queue/         recipe=queue          its Lua, its keys (keys.rs), waiting, local hand-over
//!   reentrant/     recipe=reentrant      Redisson's layout
//!   set_nx_px/     recipe=set-nx-px      one key per lock (single_key.rs)
//!   redlock/       redlock://            one node of a quorum, on the same layout
//!   setnx_expire.rs, getset.rs           unsafe, to be seen failing
//!   rights.rs, eviction.rs               what is checked when a keeper connects
//!   checkup.rs     what an operator should know of the server
//!   sequence.rs    numbers that nobody else gets
//!   error.rs       what a failed command means
//! ```

mod checkup;
mod client;
mod error;
mod eviction;
mod getset;
mod keys;
mod options;
mod protocol;
mod queue;
mod redlock;
mod reentrant;
mod rights;
mod sequence;
mod set_nx_px;
mod setnx_expire;
mod single_key;

use crate::backend::Backend;
use crate::background::Background;
use crate::claim::ClaimIds;
use crate::error::Result;
pub use client::Topology;
use client::{Client, Connector};
pub use options::{RedisOptions, RedisRecipe};
pub use redlock::RedlockOptions;
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
            // With a letter in it: in capitals it is another one to those that compare (`renew.lua`).
            let keeper = format!("a{}", &ClaimIds::new()?.next().to_string()[1..]);
            let settings = queue::Settings { prefix, keeper, barging: options.barging, url };
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
