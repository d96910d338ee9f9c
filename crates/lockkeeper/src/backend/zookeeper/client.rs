//! The one session that everyone of a keeper shares, made anew when it ended.

use super::options::Door;
use super::route::Route;
use super::session::Session;
use super::trouble::Fault;
use crate::background::Background;
use crate::error::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug)]
pub(super) struct Client {
    route: Arc<Route>,
    /// Where connections live.
    home: Background,
    current: Mutex<Option<Arc<Session>>>,
    /// So that many who find it ended make one new one.
    opening: tokio::sync::Mutex<()>,
}

impl Client {
    pub(super) fn new(door: Door, home: Background) -> Self {
        let route = Arc::new(Route::new(door));
        Self { route, home, current: Mutex::default(), opening: tokio::sync::Mutex::new(()) }
    }

    pub(super) async fn session(&self) -> Result<Arc<Session>> {
        if let Some(session) = self.current() {
            return Ok(session);
        }
        let _opening = self.opening.lock().await;
        if let Some(session) = self.current() {
            return Ok(session);
        }
        let opened = self.home.settle(|| {
            let route = self.route.clone();
            async move { Session::open(&route).await }
        });
        let opened = opened.await?.map_err(|fault| self.explain(&fault))?;
        let session = Arc::new(opened);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(session.clone());
        Ok(session)
    }

    fn current(&self) -> Option<Arc<Session>> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.clone().filter(|session| !session.is_over())
    }

    pub(super) fn explain(&self, fault: &Fault) -> Error {
        fault.explain(&self.route.door.shown)
    }
}
