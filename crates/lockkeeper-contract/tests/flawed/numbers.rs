//! Its sequences and records.

use super::Flaw;
use async_trait::async_trait;
use lockkeeper::backend::memory::Memory;
use lockkeeper::backend::{Backend, LAST_NUMBER, Name, Reserve, Reserved, Sequencer};
use lockkeeper::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// How long something is under way that ought to be one step.
const UNDER_WAY: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(super) struct Numbers {
    flaw: Flaw,
    /// Where it is sound.
    sound: Memory,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    counts: BTreeMap<Name, u64>,
    records: BTreeMap<Name, String>,
    /// The number of the last call.
    calls: u64,
}

impl Numbers {
    pub(super) fn new(flaw: Flaw) -> Self {
        Self { flaw, sound: Memory::new(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sound(&self) -> Result<&dyn Sequencer> {
        let missing = || Error::new(ErrorKind::Unsupported, "memory has no sequencer");
        self.sound.sequencer().ok_or_else(missing)
    }

    /// The names of all sequences.
    pub(super) fn counted(&self) -> Vec<Name> {
        self.state().counts.keys().cloned().collect()
    }

    fn folded(&self, name: &Name) -> Name {
        let lower = name.as_str().to_lowercase();
        match self.flaw {
            Flaw::FoldsCase => Name::new(&lower).unwrap_or_else(|_| name.clone()),
            _ => name.clone(),
        }
    }
}

#[async_trait]
impl Sequencer for Numbers {
    async fn reserve(&self, name: &Name, wish: &Reserve) -> Result<Reserved> {
        let (name, count) = (self.folded(name), u64::from(wish.count.max(1)));
        let read_before = match self.flaw {
            Flaw::CountsInTwoSteps => {
                let last = self.state().counts.get(&name).copied();
                tokio::time::sleep(UNDER_WAY).await;
                Some(last)
            }
            _ => None,
        };
        let mut state = self.state();
        state.calls += 1;
        let mut last = read_before.unwrap_or_else(|| state.counts.get(&name).copied());
        let mut wish = *wish;
        match self.flaw {
            Flaw::ForgetsFloor => wish = wish.from(1),
            Flaw::BeginsAnyway => wish.existing = false,
            Flaw::CountsInCircles if last == Some(LAST_NUMBER) => last = None,
            _ => {}
        }
        let reserved = Reserved::of(last, &wish);
        let end = match reserved {
            Reserved::From(first) => first + count - 1,
            Reserved::Beyond(last) if self.flaw == Flaw::CountsBeyond => last.saturating_add(count),
            _ => return Ok(reserved),
        };
        let end = match self.flaw {
            // A float has no odd numbers behind 2^53.
            Flaw::CountsInFloats if end > 1 << 53 => end & !1,
            _ => end,
        };
        // Every third time the count is left as it was.
        if self.flaw != Flaw::CountsLate || !state.calls.is_multiple_of(3) {
            state.counts.insert(name, end.min(LAST_NUMBER));
        }
        Ok(reserved)
    }

    async fn read(&self, name: &Name) -> Result<Option<String>> {
        Ok(self.state().records.get(&self.folded(name)).cloned())
    }

    async fn write(&self, name: &Name, value: &str, expected: Option<&str>) -> Result<bool> {
        // It knows what no record may say.
        self.sound()?.write(&Name::new("checked")?, value, Some("no such value")).await?;
        let name = self.folded(name);
        let found = self.state().records.get(&name).cloned();
        let matches = match self.flaw {
            Flaw::WritesBlindly => true,
            Flaw::ForgivesBlanks => {
                found.as_deref().map(str::trim_end) == expected.map(str::trim_end)
            }
            _ => found.as_deref() == expected,
        };
        if self.flaw == Flaw::WritesInTwoSteps {
            tokio::time::sleep(UNDER_WAY).await;
        }
        let cut = if self.flaw == Flaw::CutsRecords { 255 } else { usize::MAX };
        if matches {
            self.state().records.insert(name, value.chars().take(cut).collect());
        }
        Ok(matches)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Name, String)>> {
        let of_prefix =
            |name: &Name| self.flaw == Flaw::ListsAll || name.as_str().starts_with(prefix);
        let state = self.state();
        let listed = state.records.iter().filter(|(name, _)| of_prefix(name));
        Ok(listed.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    async fn time(&self) -> Result<Option<SystemTime>> {
        let mut state = self.state();
        state.calls += 1;
        let back = if self.flaw == Flaw::ClockGoesBack { state.calls } else { 0 };
        Ok(SystemTime::now().checked_sub(Duration::from_secs(back)))
    }

    async fn auto_increment(&self, count: u32) -> Result<Option<Vec<u64>>> {
        let last = self.state().calls;
        if self.flaw == Flaw::IncrementsTwice {
            tokio::time::sleep(UNDER_WAY).await;
        }
        let mut state = self.state();
        let last = if self.flaw == Flaw::IncrementsTwice { last } else { state.calls };
        state.calls = last + u64::from(count);
        Ok(Some((last + 1..=state.calls).collect()))
    }
}
