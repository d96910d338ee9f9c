//! What must have happened in a run before "no violation" means anything.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Faults that last longer than a claim without renewal.
const OUTLASTING: [&str; 6] = ["pause", "stall", "partition", "one-way", "late", "server-pause"];

/// What is required of a run. If a minimum is not met, the run proves nothing, and the verdict is
/// [`Verdict::Unknown`](super::Verdict::Unknown).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Demands {
    /// Whether the lock promises to serve in order of arrival (FIFO).
    pub fair: bool,
    /// Whether the run must have continued after all faults were over.
    pub healed: bool,
    /// How often a name must have passed from one client to another.
    pub hand_overs: usize,
    /// The percentage of asks that must have met another client's hold.
    pub contended_percent: usize,
    /// How many clients must have held something.
    pub clients: usize,
    /// How often a claim must have expired while its holder still had it.
    pub expiries: usize,
    /// Whether numbers must also grow from one generator to another, and not only within each.
    pub ids_across: bool,
    /// How many calls must have issued numbers.
    pub id_calls: usize,
    /// How many generators must have issued numbers.
    pub generators: usize,
    /// How long a name may be free while someone waits for it; `None` skips this check.
    pub stalls: Option<Stalls>,
    /// How many holds each kind of fault must have affected.
    pub faults: BTreeMap<String, usize>,
}

/// When a name that is waited for and not granted counts as stalled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalls {
    /// How long a claim can outlive its holder: its ttl plus, in a store with sessions, the
    /// session.
    pub explained: Duration,
    /// What is tolerated on top of that.
    pub tolerated: Duration,
}

impl Stalls {
    /// Stalled means more than five seconds beyond what is explained.
    #[must_use]
    pub fn beyond(explained: Duration) -> Self {
        Self { explained, tolerated: Duration::from_secs(5) }
    }

    /// For runs in which no fault can lose a release. The tolerance is short enough to catch a
    /// claim that was left to its ttl, and long enough to ignore a machine that stands still for
    /// half a second.
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
    /// The minimums of [`Default`], and that each of these kinds of fault affected five holds. A
    /// run with faults that outlast a ttl must also contain a claim that expired while it was held:
    /// otherwise the faults were too short to show anything.
    #[must_use]
    pub fn of_a_run(faults: Vec<String>) -> Self {
        let outlasts = faults.iter().any(|kind| OUTLASTING.contains(&kind.as_str()));
        let faults = faults.into_iter().map(|kind| (kind, 5)).collect();
        Self { faults, expiries: usize::from(outlasts), ..Self::default() }
    }

    /// Requires only that no rule is broken.
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

    /// For numbers alone: a hundred calls from two generators; `across` also requires order between
    /// generators.
    #[must_use]
    pub fn of_ids(across: bool) -> Self {
        Self { ids_across: across, id_calls: 100, generators: 2, ..Self::none() }
    }
}
