//! A server that a run may break.

use anyhow::Result;
use std::fmt;
use std::time::Duration;

/// A server that belongs to the run. Each call returns when it is done: after a restart the server
/// answers.
pub trait Breakable: fmt::Debug + Send {
    /// Ends it without warning.
    ///
    /// # Errors
    /// When that fails; the run is then worthless and stops. So with all that follow.
    fn kill(&mut self) -> Result<()>;

    /// Starts it again with what it had kept.
    ///
    /// # Errors
    /// As [`kill`](Self::kill).
    fn restart(&mut self) -> Result<()>;

    /// Ends it, and starts it again with nothing.
    ///
    /// # Errors
    /// As [`kill`](Self::kill).
    fn restart_empty(&mut self) -> Result<()>;

    /// Stops it where it stands.
    ///
    /// # Errors
    /// As [`kill`](Self::kill).
    fn pause(&mut self) -> Result<()>;

    /// Lets it go on.
    ///
    /// # Errors
    /// As [`kill`](Self::kill).
    fn resume(&mut self) -> Result<()>;

    /// Puts its clock ahead of ours by so much; zero puts it right.
    ///
    /// # Errors
    /// As [`kill`](Self::kill); also when its clock cannot be set.
    fn clock_ahead(&mut self, by: Duration) -> Result<()>;
}
