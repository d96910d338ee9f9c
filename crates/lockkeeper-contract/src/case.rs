//! One promise and its test.

use crate::cases;
use crate::stage::Stage;
use crate::subject::Subject;
use crate::verdict::{Failure, Outcome};
use futures_util::future::LocalBoxFuture;
use libtest_mimic::{Failed, Trial};
use lockkeeper::backend::Capability;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// A case that takes longer is stuck. Far above what a loaded machine needs.
const STUCK: Duration = Duration::from_secs(60);

type Run = Arc<dyn Fn(Arc<Stage>) -> LocalBoxFuture<'static, Outcome> + Send + Sync>;

/// One promise.
#[derive(Clone)]
pub(crate) struct Case {
    group: &'static str,
    promise: String,
    run: Run,
}

impl Case {
    pub(crate) fn new<F>(
        group: &'static str,
        promise: impl Into<String>,
        run: impl Fn(Arc<Stage>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Outcome> + 'static,
    {
        let run: Run = Arc::new(move |stage| Box::pin(run(stage)));
        Self { group, promise: promise.into(), run }
    }

    /// Runs the case on its own thread and runtime, and looks for leftovers.
    fn judge(&self, subject: &Subject, capability: &Capability) -> Result<(), String> {
        let (case, subject) = (self.clone(), subject.clone());
        let shortest_ttl = capability.shortest_ttl;
        let judged = std::thread::spawn(move || {
            let runtime = runtime();
            let stage = Arc::new(Stage::new(subject, shortest_ttl));
            let outcome = runtime.block_on(async {
                let limited = tokio::time::timeout(STUCK, (case.run)(stage.clone())).await;
                limited.unwrap_or_else(|_| Err(Failure::broken("stuck: it went on and on")))
            });
            // A failed case is allowed to leave things behind.
            let outcome = outcome.and_then(|()| runtime.block_on(stage.cleared()));
            runtime.shutdown_background();
            outcome
        });
        match judged.join() {
            Ok(outcome) => outcome.map_err(|failure| failure.to_string()),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|t| (*t).to_owned()));
                Err(format!("panicked: {}", text.unwrap_or_default()))
            }
        }
    }
}

fn runtime() -> Runtime {
    match Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => panic!("no runtime could be started: {error}"),
    }
}

/// The capability of the subject, learnt by opening it.
fn capability(subject: &Subject) -> Result<(Capability, bool), String> {
    let runtime = runtime();
    let opened = runtime.block_on(subject.open());
    let known = opened.map(|backend| (backend.capability(), backend.inspector().is_some()));
    runtime.shutdown_background();
    known.map_err(|error| format!("it cannot be opened: {error:?}"))
}

/// Every trial of `subject`, named `<label>::<group>::<promise in words>`.
///
/// A subject that cannot be opened gives one trial, which fails.
pub fn suite(subject: &Subject) -> Vec<Trial> {
    let label = subject.name();
    let (capability, inspects) = match capability(subject) {
        Ok(known) => known,
        Err(why) => {
            return vec![Trial::test(format!("{label}::opens"), move || Err(Failed::from(why)))];
        }
    };
    let crossing = subject.crossing().is_some();
    let trials = cases::all(&capability, inspects, crossing).into_iter().map(|case| {
        let subject = subject.clone();
        let name = format!("{label}::{}::{}", case.group, case.promise);
        Trial::test(name, move || case.judge(&subject, &capability).map_err(Failed::from))
    });
    trials.collect()
}

/// The trials of a subject that is known to break promises. Each entry of `broken` names a case and
/// a part of its failure message: the trial passes if the case fails with that message. It fails if
/// the promise is kept after all or is broken in another way. So a known flaw cannot change
/// unnoticed.
pub fn suite_of_flawed(subject: &Subject, broken: &[(&'static str, &'static str)]) -> Vec<Trial> {
    let Ok((capability, inspects)) = capability(subject) else { return suite(subject) };
    let label = subject.name();
    let mut left = broken.to_vec();
    let cases = cases::all(&capability, inspects, subject.crossing().is_some());
    let mut trials = Vec::new();
    for case in cases {
        let (subject, promise) = (subject.clone(), format!("{}::{}", case.group, case.promise));
        let name = format!("{label}::{promise}");
        let known = left.extract_if(.., |(known, _)| *known == promise).next();
        trials.push(match known {
            None => {
                Trial::test(name, move || case.judge(&subject, &capability).map_err(Failed::from))
            }
            Some((_, says)) => {
                Trial::test(name, move || must_say(case.judge(&subject, &capability), says))
                    .with_kind("known to be broken")
            }
        });
    }
    trials.extend(left.into_iter().map(|(name, _)| {
        Trial::test(format!("{label}::{name}"), || Err(Failed::from("there is no such case")))
    }));
    trials
}

fn must_say(outcome: Result<(), String>, says: &str) -> Result<(), Failed> {
    match outcome {
        Ok(()) => Err(Failed::from("known to be broken, and yet kept: strike it off the list")),
        Err(why) if why.contains(says) => Ok(()),
        Err(why) => Err(Failed::from(format!("it was to say {says:?}, and says: {why}"))),
    }
}

/// The result of one case.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Verdict {
    /// `<group>::<promise in words>`.
    pub name: String,
    /// Why it failed, if it did.
    pub outcome: Result<(), String>,
}

/// Runs the cases of `groups`, all of them if none is named, without a test harness.
///
/// # Panics
/// When the subject cannot be opened.
pub fn verdicts(subject: &Subject, groups: &[&str]) -> Vec<Verdict> {
    let known = capability(subject);
    let (capability, inspects) = known.unwrap_or_else(|why| panic!("{}: {why}", subject.name()));
    let mut cases = cases::all(&capability, inspects, subject.crossing().is_some());
    cases.retain(|case| groups.is_empty() || groups.contains(&case.group));
    let (next, verdicts) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    // Cases mostly wait: running many at once costs little and saves much time.
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let name = format!("{}::{}", case.group, case.promise);
                    let verdict = Verdict { name, outcome: case.judge(subject, &capability) };
                    verdicts.lock().unwrap_or_else(PoisonError::into_inner).push(verdict);
                }
            });
        }
    });
    verdicts.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper::backend::Backend;
    use lockkeeper::backend::memory::Memory;

    #[test]
    fn what_is_known_to_be_broken_must_be_and_in_the_known_way() {
        let broken = || Err("two held it for 3 ms".to_owned());
        assert!(must_say(broken(), "two held it").is_ok());
        assert!(must_say(broken(), "nobody held it").is_err());
        assert!(must_say(Ok(()), "").is_err());
    }

    #[test]
    fn every_case_is_tried_and_so_is_one_that_does_not_exist() {
        let store = Arc::new(Memory::new());
        let subject = Subject::from_fn("store", move || {
            let handle: Arc<dyn Backend> = store.clone();
            async move { Ok(handle) }
        });
        let known = [("names::bad_ones_are_refused", ""), ("names::none", "")];
        let trials = suite_of_flawed(&subject, &known);
        assert_eq!(trials.len(), suite(&subject).len() + 1);
        let named = |name: &str| trials.iter().find(|trial| trial.name() == name).unwrap();
        assert_eq!(named("store::names::bad_ones_are_refused").kind(), "known to be broken");
        assert_eq!(named("store::names::no_two_of_them_are_one").kind(), "");
        named("store::names::none");
    }
}
