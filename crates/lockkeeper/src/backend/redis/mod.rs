//! `redis://` — Redis and Valkey, version 6.2 or later.

mod channels;
mod key;
mod link;
mod listener;
mod options;
pub mod plain;
pub mod queue;
pub mod reentrant;
mod roll;
mod route;
mod script;
mod sequence;
mod trouble;
mod vigil;

use crate::address::Address;
use crate::backend::Backend;
use crate::claim::ClaimIds;
use crate::error::{Error, ErrorKind, Result};
use link::Link;
use options::Options;
use route::Route;
use std::sync::Arc;

/// Opens the recipe that the URL names.
pub(crate) async fn open(address: &Address) -> Result<Arc<dyn Backend>> {
    let options = Options::read(address)?;
    let url = address.to_string();
    let route = Arc::new(Route::new(options.way.clone(), options.door.clone(), url.clone()));
    let link = Link::new(route, options.replicas, options.timeout);
    match options.recipe.as_str() {
        "queue" => {
            options.check_eviction(&link).await?;
            let keeper = ClaimIds::new()?.next().to_string();
            let (prefix, barging) = (options.prefix_or_default(), options.barging);
            let settings = queue::Settings { prefix, keeper, barging, url };
            Ok(Arc::new(queue::Queue::open(link, settings).await?))
        }
        "set-nx-px" | "setnx-expire" | "getset" => {
            address.only_options(plain::OPTIONS)?;
            options.check_eviction(&link).await?;
            Ok(plain::open(&options.recipe, link, options.prefix.unwrap_or_default(), url))
        }
        "reentrant" => {
            address.only_options(reentrant::OPTIONS)?;
            options.check_eviction(&link).await?;
            let settings = reentrant::Settings {
                prefix: options.prefix.clone().unwrap_or_default(),
                keeper: ClaimIds::new()?.next().to_string(),
                clustered: link.route.is_cluster(),
                url,
            };
            Ok(Arc::new(reentrant::Reentrant::open(link, settings).await?))
        }
        other => {
            let recipes = crate::connect::recipes();
            let ours = recipes.iter().filter(|recipe| recipe.scheme == "redis");
            let names: Vec<_> = ours.map(|recipe| recipe.name).collect();
            Err(Error::new(
                ErrorKind::Config,
                format!("redis:// has no recipe {other:?}: it has {}", names.join(", ")),
            ))
        }
    }
}
