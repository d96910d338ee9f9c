//! How long something took, many times.

use std::time::Duration;

/// So many are kept, and those after them only counted: eight megabytes, however long it runs.
const MOST: usize = 1_000_000;

#[derive(Debug, Default)]
pub(super) struct Samples {
    took: Vec<Duration>,
    count: u64,
    /// For how long it was done again and again, where it was.
    over: Option<Duration>,
}

impl Samples {
    pub(super) fn add(&mut self, took: Duration) {
        self.count += 1;
        if self.took.len() < MOST {
            self.took.push(took);
        }
    }

    pub(super) fn extend(&mut self, other: Self) {
        let kept = u64::try_from(other.took.len()).unwrap_or(u64::MAX);
        let only_counted = other.count - kept;
        other.took.into_iter().for_each(|took| self.add(took));
        self.count += only_counted;
    }

    /// The same, done in so long a time.
    pub(super) fn over(self, time: Duration) -> Self {
        Self { over: Some(time), ..self }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// So many of a hundred took no longer; `None` where there are none.
    pub(super) fn percentile(&self, percent: usize) -> Option<Duration> {
        let mut sorted = self.took.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(at).copied()
    }

    /// How many a second, where it was done again and again.
    pub(super) fn rate(&self) -> Option<f64> {
        // Exact up to 2^53.
        #[allow(clippy::cast_precision_loss)]
        let count = self.count as f64;
        self.over.map(|over| count / over.as_secs_f64().max(f64::MIN_POSITIVE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_and_empty_ones_are_none() {
        let mut samples = Samples::default();
        assert_eq!(samples.percentile(50), None);
        for millis in [30, 10, 20] {
            samples.add(Duration::from_millis(millis));
        }
        assert_eq!(samples.percentile(50), Some(Duration::from_millis(20)));
        assert_eq!(samples.percentile(99), Some(Duration::from_millis(30)));
        let mut more = Samples::default();
        more.add(Duration::ZERO);
        samples.extend(more);
        assert_eq!((samples.count(), samples.percentile(1)), (4, Some(Duration::ZERO)));
        assert_eq!(samples.rate(), None);
        assert_eq!(samples.over(Duration::from_secs(2)).rate(), Some(2.0));
    }
}
