//! What a server that has forgotten its locks owes to those who held them.
//!
//! Locks of sessions are in the server's memory. A server that was restarted, and a standby that
//! was promoted, know nothing of them, while a holder that was cut off from the old one believes in
//! its lock until its lease is over. So a server grants nothing before it has been the one for as
//! long as the longest lease that was ever given.
//!
//! What that takes is in a small table that survives: one row for each *life* of a server, with the
//! longest lease that any keeper asked for in it. The first life of all owes nothing. How long a
//! life has lasted is counted from the start of PostgreSQL where the same timeline was met before,
//! and else from the first keeper that met it: nobody tells when a standby became the primary, and
//! MariaDB and MySQL tell their start in whole seconds only.

use crate::backend::Moment;
use std::time::Duration;

/// What the table says of the server's life, just read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::backend::sql) struct Life {
    /// How long it has lasted.
    pub(in crate::backend::sql) lasted: Duration,
    /// The longest lease that was given in another life, if there was another.
    pub(in crate::backend::sql) owed: Option<Duration>,
}

impl Life {
    /// From when on locks may be granted.
    pub(in crate::backend::sql) fn grants_from(self) -> Moment {
        Moment::now() + self.owed.unwrap_or_default().saturating_sub(self.lasted)
    }

    /// From milliseconds, as databases count them.
    pub(in crate::backend::sql) fn of_millis(lasted: i64, owed: Option<i64>) -> Self {
        // A clock that went back says nothing of how long the life has lasted.
        let span = |millis: i64| Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        Self { lasted: span(lasted), owed: owed.map(span) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_new_life_waits_out_the_leases_of_the_old_one() {
        let now = Moment::now();
        let wait = |lasted, owed| Life::of_millis(lasted, owed).grants_from().since(now);
        assert_eq!(wait(0, None), Duration::ZERO, "the first life of all");
        assert_eq!(wait(3_000, Some(10_000)), Duration::from_secs(7));
        assert_eq!(wait(10_000, Some(10_000)), Duration::ZERO);
        assert_eq!(wait(-5, Some(10_000)), Duration::from_secs(10), "a clock that went back");
    }
}
