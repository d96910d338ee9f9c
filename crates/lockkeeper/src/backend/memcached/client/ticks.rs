//! Whether a server's clock runs, and since when we know.
//!
//! memcached counts an item's time from a clock that its main thread moves once a second, while
//! other threads carry out requests. After a pause of the whole process those threads may be first:
//! they store an item as if it were the moment at which the pause began, and once the clock has
//! caught up, the item ends early by the length of the pause. (Seen in six of twelve tries.)
//!
//! So a request that sets an expiry is believed only with a *reading* of that clock, by `stats`,
//! which was taken shortly before or together with it and is not behind what the server's clock
//! must show by now. Validity counts from the moment before the reading was asked for: whatever
//! stands still afterwards, the item is kept for its time from then on.
//!
//! What the clock must show is known from earlier readings. The first one is taken when a
//! connection is made, which is the main thread's work too.

use super::Life;
use crate::backend::Moment;
use std::time::Duration;

/// How long a reading vouches for requests that follow it.
const VOUCHES: Duration = Duration::from_millis(250);
/// A clock that moves once a second is up to a second behind, and a little more on a busy machine.
const TICK: Duration = Duration::from_millis(1250);
/// By how much clocks of two machines may run apart: one part in this many.
const APART: u32 = 2000;
/// A clock that is behind and yet moved on by this much is not stuck: its machine slept.
const MOVED_ON: u64 = 2;

/// What is known of the clock of one server.
#[derive(Debug, Default)]
pub(super) struct Ticks {
    life: Option<Life>,
    /// The reading that was furthest ahead, and when it had arrived.
    ahead: Option<(u64, Moment)>,
    /// The first of the readings that were behind, if the last one was.
    behind: Option<u64>,
    /// When the last reading that was not behind was asked for.
    fresh: Option<Moment>,
}

impl Ticks {
    /// Begins anew with the reading of a new connection.
    pub(super) fn begin(&mut self, life: Life, seconds: u64, asked: Moment, heard: Moment) {
        if self.life != Some(life) {
            *self = Self { life: Some(life), ..Self::default() };
        }
        self.read(life, seconds, asked, heard);
    }

    /// Since when the server's clock is known to run, if that is recent enough for a request that
    /// is sent now.
    pub(super) fn vouched(&self, life: Life, now: Moment) -> Option<Moment> {
        let fresh = self.fresh.filter(|_| self.life == Some(life))?;
        (now.since(fresh) <= VOUCHES).then_some(fresh)
    }

    /// Takes a reading into account; whether the server's clock is not behind.
    pub(super) fn read(&mut self, life: Life, seconds: u64, asked: Moment, heard: Moment) -> bool {
        if self.life != Some(life) {
            return false;
        }
        let shown = Duration::from_secs(seconds);
        let least = |at: Moment| self.ahead.map(|(seconds, when)| at_least(seconds, when, at));
        let is_behind = least(asked).is_some_and(|least| shown + TICK < least);
        let slept = self.behind.is_some_and(|first| seconds >= first + MOVED_ON);
        if is_behind && !slept {
            self.behind.get_or_insert(seconds);
            return false;
        }
        self.behind = None;
        if slept || least(heard).is_none_or(|least| shown >= least) {
            self.ahead = Some((seconds, heard));
        }
        self.fresh = self.fresh.max(Some(asked));
        true
    }
}

/// What a clock shows at least that showed `seconds` at `when`.
fn at_least(seconds: u64, when: Moment, at: Moment) -> Duration {
    let passed = at.since(when);
    Duration::from_secs(seconds) + (passed - passed / APART)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Life = Life { started: 1, process: 2 };

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[tokio::test]
    async fn a_clock_that_stood_still_is_found_out() {
        let start = Moment::now();
        let mut ticks = Ticks::default();
        ticks.begin(LIFE, 100, start, start + ms(1));
        assert_eq!(ticks.vouched(LIFE, start + ms(200)), Some(start));
        assert_eq!(ticks.vouched(LIFE, start + ms(300)), None);
        // A pause of three seconds, and a thread that was faster than the clock.
        assert!(!ticks.read(LIFE, 100, start + ms(3000), start + ms(3001)));
        assert_eq!(ticks.vouched(LIFE, start + ms(3001)), None);
        assert!(ticks.read(LIFE, 103, start + ms(3010), start + ms(3011)));
        assert_eq!(ticks.vouched(LIFE, start + ms(3011)), Some(start + ms(3010)));
    }

    #[tokio::test]
    async fn a_clock_that_ticks_is_believed() {
        let start = Moment::now();
        let mut ticks = Ticks::default();
        ticks.begin(LIFE, 100, start, start);
        for tenth in 0..100 {
            let now = start + ms(100 * tenth);
            // Its seconds began 0.9 s before our first look.
            assert!(ticks.read(LIFE, 100 + (900 + 100 * tenth) / 1000, now, now + ms(1)));
        }
    }

    #[tokio::test]
    async fn a_machine_that_slept_is_believed_once_its_clock_moves() {
        let start = Moment::now();
        let mut ticks = Ticks::default();
        ticks.begin(LIFE, 100, start, start);
        let late = |seconds: u64| start + Duration::from_secs(3600 + seconds);
        assert!(!ticks.read(LIFE, 101, late(0), late(0)));
        assert!(!ticks.read(LIFE, 102, late(1), late(1)));
        assert!(ticks.read(LIFE, 103, late(2), late(2)));
        assert!(ticks.read(LIFE, 104, late(3), late(3)));
    }

    #[tokio::test]
    async fn another_life_of_the_server_is_not_vouched_for() {
        let (start, other) = (Moment::now(), Life { started: 9, process: 2 });
        let mut ticks = Ticks::default();
        ticks.begin(LIFE, 100, start, start);
        assert_eq!(ticks.vouched(other, start), None);
        assert!(!ticks.read(other, 100, start, start));
        ticks.begin(other, 9, start, start);
        assert_eq!((ticks.vouched(other, start), ticks.vouched(LIFE, start)), (Some(start), None));
    }
}
