//! How much is asked of a store at once.
//!
//! A server that is far away is asked much at once, since the way takes longer than the work. One that is
//! near is asked little, since others' requests queue up behind ours. Which of the two it is, the answers
//! tell: more is asked for as long as that does not make them take longer.

use std::time::Duration;

/// How much is asked at once, at the moment.
#[derive(Debug)]
pub(crate) struct Pace {
    size: usize,
    least: usize,
    most: usize,
    /// What an answer takes to the least that is asked: the way, as it is at the moment.
    way: Option<Duration>,
    /// How many answers there were.
    answers: u32,
}

/// So often the least is asked again: what more takes does not tell what the way is.
const AGAIN: u32 = 64;

impl Pace {
    /// Begins with the least.
    pub(crate) fn new(least: usize, most: usize) -> Self {
        Self { size: least, least, most, way: None, answers: 0 }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// So much was asked, and the answer took this long.
    pub(crate) fn took(&mut self, span: Duration) {
        let way = match self.way {
            Some(way) if span > way && self.size == self.least => (way * 3 + span) / 4,
            Some(way) => way.min(span),
            None => span,
        };
        self.way = Some(way);
        self.answers = self.answers.wrapping_add(1);
        if self.answers.is_multiple_of(AGAIN) {
            self.size = self.least;
        } else if span > way + way / 2 {
            self.size = (self.size / 2).max(self.least);
        } else if span < way + way / 5 {
            self.size = (self.size * 2).min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of a server that is so far away, in microseconds, and takes 20 for each question.
    fn settled(pace: &mut Pace, way: u64) -> usize {
        let mut most = 0;
        for round in 0..100 {
            pace.took(Duration::from_micros(way + 20 * pace.size() as u64));
            most = if round < 10 { 0 } else { most.max(pace.size()) };
        }
        most
    }

    #[test]
    fn one_that_is_far_away_is_asked_much() {
        assert_eq!(settled(&mut Pace::new(1, 32), 2000), 32);
    }

    #[test]
    fn one_that_is_near_is_asked_little() {
        assert!(settled(&mut Pace::new(1, 32), 40) <= 4);
    }

    #[test]
    fn a_way_that_becomes_longer_is_no_load() {
        let mut pace = Pace::new(1, 32);
        settled(&mut pace, 200);
        for _ in 0..600 {
            pace.took(Duration::from_micros(5000 + 20 * pace.size() as u64));
        }
        assert_eq!(pace.size(), 32);
    }
}
