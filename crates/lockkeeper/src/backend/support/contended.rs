//! Reading, deciding, and writing if nothing changed meanwhile: what those need who do that on what
//! others change in the same way.

use crate::error::{Error, ErrorKind, Result};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};

/// How often it is tried. Each time another got through, and the pauses grow: among a hundred that
/// try at once, none fails so often.
pub(crate) const TRIES: u32 = 200;
/// The longest pause is this, times the number of tries so far, up to [`MOST`].
const STEP: Duration = Duration::from_micros(500);
/// The longest pause of all.
const MOST: Duration = Duration::from_millis(20);
/// How many names are changed at once by one keeper.
const GATES: usize = 16;

/// One change of a name at a time in this keeper: others would only be decided in vain. Some names
/// share a gate, which costs time and nothing else.
#[derive(Debug, Default)]
pub(crate) struct Gates([Mutex<()>; GATES]);

impl Gates {
    /// Waits until nobody else of this keeper is at the name.
    pub(crate) async fn enter(&self, name: &str) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let [gate, ..] = hasher.finish().to_le_bytes();
        self.0[usize::from(gate) % GATES].lock().await
    }
}

/// A moment of a length of its own for each, so that not all come again at once.
pub(crate) async fn pause(tries: u32) {
    let mut random = [0_u8; 1];
    // Without chance there is a pause all the same.
    let _ = getrandom::fill(&mut random);
    let longest = (STEP * (tries + 1)).min(MOST);
    tokio::time::sleep(longest * (u32::from(random[0]) + 1) / 256).await;
}

/// The error for a name at which others always were faster.
pub(crate) fn restless(name: &str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("{name:?} changes faster than it can be read: try again, or ask for more at once"),
    )
}

/// A text that nobody else writes, by which a value is known again.
pub(crate) fn nonce() -> Result<String> {
    let mut random = [0_u8; 12];
    getrandom::fill(&mut random).map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("the system gives no random numbers: {error}"))
    })?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
