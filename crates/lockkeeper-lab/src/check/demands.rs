//! What a run must have seen before its silence counts.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Faults that go on for longer than a claim lasts without renewal.
const OUTLASTING: [&str; 6] = ["pause", "stall", "partition", "one-way", "late", "server-pause"];

/// What is asked of a run. Where a minimum is not met, nothing was shown, and the verdict is
/// [`Verdict::Unknown`](super::Verdict::Unknown).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Demands {
    /// Whether the lock promises to serve in order of arrival.
    pub fair: bool,
    /// Whether the run must have gone on after all faults were over.
    pub healed: bool,
    /// How often a name must have gone from one client to another.
    pub hand_overs: usize,
    /// How many of a hundred asks must have met another's hold.
    pub contended_percent: usize,
    /// How many clients must have held something.
    pub clients: usize,
    /// How often a validity must have ended in its holder's hands.
    pub expiries: usize,
    /// Whether numbers must grow from one generator to another too, and not only within each.
    pub ids_across: bool,
    /// How many calls must have issued numbers.
    pub id_calls: usize,
    /// How many generators must have.
    pub generators: usize,
    /// How long a name may be held by nobody while someone waits; not looked for where `None`.
    pub stalls: Option<Stalls>,
    /// How many holds each kind of fault must have hit.
    pub faults: BTreeMap<String, usize>,
}

/// When a name that nobody gets is stalled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalls {
    /// How long a claim can outlive its holder: its ttl, and where there is one the session.
    pub explained: Duration,
    /// What is beyond that, but not yet a stall.
    pub tolerated: Duration,
}

impl Stalls {
    /// More than five seconds beyond what is explained.
    #[must_use]
    pub fn beyond(explained: Duration) -> Self {
        Self { explained, tolerated: Duration::from_secs(5) }
    }

    /// Where nothing happens by which a release could be lost: so long that it takes a claim which
    /// was left to its ttl, and no machine that stands still for half a second.
    #[must_use]
    pub fn of_lost_releases(ttl: Duration) -> Self {
        Self { explained: Duration::ZERO, tolerated: ttl * 3 / 4 }
    }
}

impl Default for Demands {
    fn default() -> Self {
        Self {
            fair: false,
            healed: true,
            hand_overs: 100,
            contended_percent: 50,
            clients: 3,
            expiries: 0,
            ids_across: false,
            id_calls: 0,
            generators: 0,
            stalls: None,
            faults: BTreeMap::new(),
        }
    }
}

impl Demands {
    /// The minimums of [`Default`], and that each of these kinds of fault hit five holds. A run with
    /// faults that outlast a ttl must also have seen a validity end in its holder's hands: without
    /// that they were too short to show anything.
    #[must_use]
    pub fn of_a_run(faults: Vec<String>) -> Self {
        let outlasts = faults.iter().any(|kind| OUTLASTING.contains(&kind.as_str()));
        let faults = faults.into_iter().map(|kind| (kind, 5)).collect();
        Self { faults, expiries: usize::from(outlasts), ..Self::default() }
    }

    /// Asks for nothing but that no rule is broken.
    #[must_use]
    pub fn none() -> Self {
        Self {
            fair: false,
            healed: false,
            hand_overs: 0,
            contended_percent: 0,
            clients: 0,
            expiries: 0,
            ids_across: false,
            id_calls: 0,
            generators: 0,
            stalls: None,
            faults: BTreeMap::new(),
        }
    }

    /// Of numbers alone: a hundred calls of two generators, in order between them where that is
    /// promised.
    #[must_use]
    pub fn of_ids(across: bool) -> Self {
        Self { ids_across: across, id_calls: 100, generators: 2, ..Self::none() }
    }
}
