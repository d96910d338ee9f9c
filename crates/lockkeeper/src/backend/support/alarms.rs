//! The alarms of a keeper's claims, for stores that tell of losses by message or by a look at all
//! of them at once.

use crate::backend::support::sync::lock;
use crate::backend::{Alarm, LossReason};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

/// How many losses are remembered for which there was no alarm yet. Between a grant and its alarm
/// there is a moment only; the bound is for messages about claims that are long over.
const REMEMBERED: usize = 256;

/// By the claims' ids.
#[derive(Debug, Default)]
pub(crate) struct Alarms(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    alarms: HashMap<String, Alarm>,
    /// Losses told of claims that were not watched, the oldest first: perhaps not yet.
    early: VecDeque<(String, LossReason)>,
}

impl Alarms {
    /// Keeps `alarm`, or rings it at once if the claim was already said to be lost.
    pub(crate) fn watch(&self, id: &str, alarm: Alarm) {
        let early = {
            let mut known = self.known();
            match known.take_early(id) {
                Some(reason) => Some((alarm, reason)),
                None => {
                    known.alarms.insert(id.to_owned(), alarm);
                    None
                }
            }
        };
        // Outside the lock: a lost hold may release, which comes back here.
        if let Some((alarm, reason)) = early {
            alarm.ring(reason);
        }
    }

    /// Whether the claim was watched until now, and not said to be lost.
    pub(crate) fn unwatch(&self, id: &str) -> bool {
        let mut known = self.known();
        known.take_early(id);
        known.alarms.remove(id).is_some()
    }

    /// Says that the claim is lost: to its holder, or to who will be in a moment.
    pub(crate) fn ring(&self, id: &str, reason: LossReason) {
        let alarm = {
            let mut known = self.known();
            let alarm = known.alarms.remove(id);
            if alarm.is_none() {
                if known.early.len() == REMEMBERED {
                    known.early.pop_front();
                }
                known.early.push_back((id.to_owned(), reason.clone()));
            }
            alarm
        };
        if let Some(alarm) = alarm {
            alarm.ring(reason);
        }
    }

    /// Says to every holder that the store cannot be reached.
    pub(crate) fn endanger(&self) {
        let alarms: Vec<Alarm> = self.known().alarms.values().cloned().collect();
        // Outside the lock: what an alarm calls may come back here.
        alarms.iter().for_each(Alarm::endanger);
    }

    /// Takes all of them out, to be rung.
    pub(crate) fn take(&self) -> Vec<Alarm> {
        std::mem::take(&mut self.known().alarms).into_values().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known().alarms.is_empty()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // No code that can panic runs under this lock; were it poisoned, its content is whole.
        lock(&self.0)
    }
}

impl Known {
    fn take_early(&mut self, id: &str) -> Option<LossReason> {
        let index = self.early.iter().position(|(early, _)| early == id)?;
        self.early.remove(index).map(|(_, reason)| reason)
    }
}

/// The alarm of one lease. Alarms are kept by claim, and there may be two leases of one, the
/// holder's and one made by its ticket: a lease takes away no alarm but its own.
#[derive(Debug, Default)]
pub(crate) struct OwnAlarm {
    is_set: bool,
}

impl OwnAlarm {
    /// As [`Alarms::watch`].
    pub(crate) fn watch(&mut self, alarms: &Alarms, id: &str, alarm: Alarm) {
        self.is_set = true;
        alarms.watch(id, alarm);
    }

    /// As [`Alarms::unwatch`], for the alarm of this lease only.
    pub(crate) fn unwatch(&mut self, alarms: &Alarms, id: &str) -> bool {
        std::mem::take(&mut self.is_set) && alarms.unwatch(id)
    }
}
