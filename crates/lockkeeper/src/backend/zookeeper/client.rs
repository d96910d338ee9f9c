//! The one session that everyone of a keeper shares, made anew when it ended.

use super::options::Door;
use super::route::Route;
use super::session::Session;
use super::trouble::Fault;
use crate::backend::support::reconnect::Reconnecting;
use crate::background::Background;
use crate::error::{Error, Result};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Client {
    route: Arc<Route>,
    /// Where connections live.
    home: Background,
    current: Reconnecting<Arc<Session>>,
}

impl Client {
    pub(super) fn new(door: Door, home: Background) -> Self {
        let route = Arc::new(Route::new(door));
        Self { route, home, current: Reconnecting::default() }
    }

    pub(super) async fn session(&self) -> Result<Arc<Session>> {
        let open = async || {
            let opened = self.home.settle(|| {
                let route = self.route.clone();
                async move { Session::open(&route).await }
            });
            opened.await?.map(Arc::new).map_err(|fault| self.explain(&fault))
        };
        let (_, session) = self.current.get(|session| !session.is_over(), open).await?;
        Ok(session)
    }

    pub(super) fn explain(&self, fault: &Fault) -> Error {
        fault.explain(&self.route.door.shown)
    }
}
