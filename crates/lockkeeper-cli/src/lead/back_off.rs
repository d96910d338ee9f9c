//! How long to pause before the next campaign.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Pauses that double, from a second to a minute, and begin anew after a term that lasted.
#[derive(Debug)]
pub(crate) struct BackOff {
    next: Duration,
}

impl BackOff {
    pub(crate) fn new() -> Self {
        Self { next: FIRST }
    }

    /// The pause after a term of office that lasted this long.
    pub(crate) fn after(&mut self, lasted: Duration) -> Duration {
        if lasted >= LONGEST {
            self.next = FIRST;
        }
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_begin_anew() {
        let mut back_off = BackOff::new();
        let mut after = |lasted| back_off.after(Duration::from_secs(lasted)).as_secs();
        let pauses: Vec<_> = (0..8).map(|_| after(1)).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!((after(59), after(60), after(0)), (60, 1, 2));
    }
}
