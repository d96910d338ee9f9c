//! `redis://` — Redis and Valkey, version 6.2 or later.

mod channels;
mod key;
mod link;
mod listener;
mod options;
pub mod queue;
pub mod reentrant;
mod roll;
mod script;
mod trouble;
mod vigil;

use crate::address::Address;
use crate::backend::Backend;
use crate::claim::ClaimIds;
use crate::error::{Error, ErrorKind, Result};
use link::{Link, Route};
use options::Options;
use std::sync::Arc;

/// Opens the recipe that the URL names.
pub(crate) async fn open(address: &Address) -> Result<Arc<dyn Backend>> {
    let options = Options::read(address)?;
    let url = address.to_string();
    let route = Arc::new(Route::new(options.info()?, options.timeout, url.clone())?);
    let link = Link::new(route);
    match options.recipe.as_str() {
        "queue" => {
            options.check_eviction(&link).await?;
            let keeper = ClaimIds::new()?.next().to_string();
            let Options { prefix, barging, .. } = options;
            let settings = queue::Settings { prefix, keeper, barging, url };
            Ok(Arc::new(queue::Queue::open(link, settings).await?))
        }
        "reentrant" => {
            address.only_options(reentrant::OPTIONS)?;
            options.check_eviction(&link).await?;
            let keeper = ClaimIds::new()?.next().to_string();
            let settings = reentrant::Settings {
                prefix: options.prefix,
                keeper,
                clustered: false,
                publish: "PUBLISH",
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
