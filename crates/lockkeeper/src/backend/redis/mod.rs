//! `redis://` — Redis and Valkey, version 6.2 or later.

mod key;
mod link;
mod listener;
mod options;
pub mod queue;
mod roll;
mod script;
mod trouble;
mod vigil;

use crate::address::Address;
use crate::backend::Backend;
use crate::claim::ClaimIds;
use crate::error::Result;
use link::{Link, Route};
use options::Options;
use std::sync::Arc;

/// Opens the recipe that the URL names.
pub(crate) async fn open(address: &Address) -> Result<Arc<dyn Backend>> {
    let options = Options::read(address)?;
    let keeper = ClaimIds::new()?.next().to_string();
    let route = Arc::new(Route::new(options.info()?, options.timeout, address.to_string())?);
    let link = Link::new(route);
    options.check_eviction(&link).await?;
    let settings = queue::Settings {
        prefix: options.prefix.clone(),
        keeper,
        barging: options.barging,
        url: address.to_string(),
    };
    Ok(Arc::new(queue::Queue::open(link, settings).await?))
}
