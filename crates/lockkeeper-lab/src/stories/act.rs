//! What was told: the steps, the verdict and what it is drawn from.

use crate::check::{Report, Verdict};
use crate::history::Record;
use crate::picture::{Mark, Panel};
use std::time::Duration;

/// A figure in a picture of bars.
#[derive(Debug, Clone)]
pub struct Figure {
    /// What was measured.
    pub what: String,
    /// How much.
    pub value: f64,
    /// How that is written.
    pub written: String,
    /// Whether it is what went wrong.
    pub bad: bool,
}

/// What a picture is drawn from.
#[derive(Debug)]
pub enum Shown {
    /// A history, and what the judge says of it.
    History {
        /// The events.
        records: Vec<Record>,
        /// The judge's report.
        report: Box<Report>,
    },
    /// Figures.
    Figures(Vec<Figure>),
}

/// One telling, of a scheme that is to fail or of its cure.
#[derive(Debug)]
pub struct Act {
    /// Whether it is the cure.
    pub cure: bool,
    /// The scheme, in a few words.
    pub heading: String,
    /// The moment of the first step.
    pub began: u64,
    /// When each step was, and what it was.
    pub steps: Vec<(u64, String)>,
    /// Words in the picture.
    pub marks: Vec<Mark>,
    /// Fail where the judge found the failure, pass where it found none and enough had happened.
    pub verdict: Verdict,
    /// What was found, in a sentence.
    pub found: String,
    /// What the picture is drawn from.
    pub shown: Shown,
}

impl Act {
    /// Whether it went as the story says: the scheme failed, or the cure held.
    #[must_use]
    pub fn as_told(&self) -> bool {
        self.verdict == if self.cure { Verdict::Pass } else { Verdict::Fail }
    }

    /// The verdict in a word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.verdict {
            Verdict::Pass => "HOLDS",
            Verdict::Fail => "FAILS",
            Verdict::Unknown => "UNKNOWN",
        }
    }

    /// Seconds since the first step.
    #[must_use]
    pub fn seconds(&self, at: u64) -> f64 {
        Duration::from_nanos(at.saturating_sub(self.began)).as_secs_f64()
    }

    /// What the judge saw, where it was given a history.
    #[must_use]
    pub fn judged(&self) -> Option<String> {
        let Shown::History { report, .. } = &self.shown else { return None };
        let counters = &report.counters;
        let count = |count: usize, what: &str| match count {
            1 => format!("1 {what}"),
            count => format!("{count} {what}s"),
        };
        let mut seen = format!(
            "The judge read {}, {} and {}",
            count(counters.asks, "claim"),
            count(counters.holds, "hold"),
            count(counters.hand_overs, "hand-over"),
        );
        if counters.fenced_off > 0 {
            seen += &format!(", saw {} stopped by a fence", count(counters.fenced_off, "write"));
        }
        let broken: Vec<String> =
            report.broken.iter().map(|(rule, count)| format!("{rule} ({count})")).collect();
        Some(match broken.is_empty() {
            true if counters.lost_writes > 0 => {
                seen + ", no rule of locks broken, and a write lost where no fence is."
            }
            true => seen + ", and no rule broken.",
            false => format!("{seen}. Broken: {}.", broken.join(", ")),
        })
    }

    /// The largest of its figures.
    #[must_use]
    pub fn most(&self) -> f64 {
        match &self.shown {
            Shown::History { .. } => 0.0,
            Shown::Figures(figures) => figures.iter().map(|it| it.value).fold(0.0, f64::max),
        }
    }
}

/// What the panels of a picture borrow.
pub(super) struct Drawn {
    steps: Vec<u64>,
    bars: Vec<(String, f64, String, bool)>,
}

impl Drawn {
    pub(super) fn of(act: &Act) -> Self {
        let bars = match &act.shown {
            Shown::History { .. } => Vec::new(),
            Shown::Figures(figures) => figures
                .iter()
                .map(|it| (it.what.clone(), it.value, it.written.clone(), it.bad))
                .collect(),
        };
        Self { steps: act.steps.iter().map(|(at, _)| *at).collect(), bars }
    }

    pub(super) fn panel<'a>(&'a self, act: &'a Act, most: f64) -> Panel<'a> {
        let class = match act.verdict {
            Verdict::Pass => "good",
            Verdict::Fail => "fail",
            Verdict::Unknown => "unknown",
        };
        let (heading, verdict) = (&*act.heading, (act.word(), class, &*act.found));
        match &act.shown {
            Shown::History { records, report } => Panel::Timeline {
                heading,
                verdict,
                records,
                report,
                steps: &self.steps,
                marks: &act.marks,
            },
            Shown::Figures(_) => Panel::Bars { heading, verdict, bars: &self.bars, most },
        }
    }
}
