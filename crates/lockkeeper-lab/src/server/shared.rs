//! Servers that many tests use.

use super::{Kind, Server};
use anyhow::Result;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

type Slot = Arc<Mutex<Option<Server>>>;

#[derive(Debug, Default)]
pub(crate) struct Shared {
    slots: Mutex<HashMap<Kind, Slot>>,
}

impl Shared {
    pub(crate) fn url(&self, kind: Kind, start: impl FnOnce() -> Result<Server>) -> Result<String> {
        if let Some(url) = std::env::var(kind.variable()).ok().filter(|url| !url.is_empty()) {
            return Ok(url);
        }
        let slot: Slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.entry(kind).or_default().clone()
        };
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = &*slot {
            return Ok(server.url());
        }
        Ok(slot.insert(start()?).url())
    }
}
