//! The signal that answers may have been lost.
//!
//! By it the client tells a recipe what it cannot know by itself, without knowing what a recipe
//! does with it: the queue has all that wait look for themselves, and every recipe tells the
//! holders that their claims are in jeopardy.

use std::fmt;
use std::sync::{Arc, OnceLock};

/// Tells the one that registered that a connection broke: requests on it may have been carried out
/// without an answer, and the server may not be reachable. Clones share the registration.
///
/// A callback and no channel: it is called before the failed requests return, so that whatever
/// depends on the answers is in doubt before anyone acts on their absence.
#[derive(Clone, Default)]
pub(crate) struct LostAnswers(Arc<OnceLock<Box<Callback>>>);

/// Must not block.
type Callback = dyn Fn() + Send + Sync;

impl LostAnswers {
    /// Registers `callback`, the first time this is called; later ones are ignored. It must not
    /// block, and must not hold the client: that would keep its connections open for ever.
    pub(crate) fn register(&self, callback: impl Fn() + Send + Sync + 'static) {
        // Once, by the recipe that made the client.
        let _ = self.0.set(Box::new(callback));
    }

    /// A connection broke under commands.
    pub(super) fn notify(&self) {
        if let Some(callback) = self.0.get() {
            callback();
        }
    }
}

impl fmt::Debug for LostAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LostAnswers")
    }
}
