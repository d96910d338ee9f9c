//! Tests that start their own servers, and break them.

pub mod encrypted;

use crate::server::{Kind, Lab, cannot_hang, missing};
use anyhow::{Context, Result};
use libtest_mimic::{Arguments, Failed, Trial};
use lockkeeper::event::{EventKind, Events};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The result of a case.
pub type Outcome<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;
/// A case: its name and what it does.
pub type Case = (&'static str, for<'a> fn(&'a Lab) -> Outcome<'a>);

/// Makes the table `CASES` of functions that take a lab.
#[macro_export]
macro_rules! cases {
    ($($case:ident),+ $(,)?) => {
        pub(crate) const CASES: &[$crate::trials::Case] =
            &[$((stringify!($case), |lab| Box::pin($case(lab)))),+];
    };
}

/// The cases, each on its own runtime; ignored, with the reason, if a server is missing.
#[must_use]
pub fn trials(lab: &Arc<Lab>, kind: Kind, cases: &[&[Case]]) -> Vec<Trial> {
    trials_unless(lab, missing(&[kind]).map(|reason| reason.to_string()), cases)
}

/// As [`trials`], for cases that make disks hang: also ignored, with the reason, without the rights
/// for that.
#[must_use]
pub fn trials_on_disks(lab: &Arc<Lab>, kind: Kind, cases: &[&[Case]]) -> Vec<Trial> {
    let reason = missing(&[kind]).map(|reason| reason.to_string());
    let reason = reason.or_else(|| cannot_hang().map(|reason| reason.to_string()));
    trials_unless(lab, reason, cases)
}

fn trials_unless(lab: &Arc<Lab>, reason: Option<String>, cases: &[&[Case]]) -> Vec<Trial> {
    let trial = |(name, case): &Case| {
        let (lab, case) = (lab.clone(), *case);
        let trial = Trial::test(*name, move || {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(case(&lab)).map_err(|error| Failed::from(format!("{error:?}")))
        });
        match &reason {
            Some(reason) => trial.with_kind(reason.as_str()).with_ignored_flag(true),
            None => trial,
        }
    };
    cases.iter().copied().flatten().map(trial).collect()
}

/// The arguments of the command line; `threads` is the default for how many tests run at once.
#[must_use]
pub fn arguments(threads: usize) -> Arguments {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(threads);
    arguments
}

/// Retries until it works, for half a minute at most.
///
/// # Panics
/// When it has not worked by then.
pub async fn eventually<T>(what: &str, mut attempt: impl AsyncFnMut() -> Result<Option<T>>) -> T {
    let begin = Instant::now();
    loop {
        match attempt().await {
            Ok(Some(found)) => return found,
            outcome => {
                let said = outcome.err().map(|error| format!("{error:#}"));
                assert!(begin.elapsed().as_secs() < 30, "in vain: {what} ({said:?})");
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until the keeper has said of so many claims that they wait: not every store can show those.
///
/// # Errors
/// When it does not say so within half a minute.
pub async fn queued(events: &mut Events, claims: usize) -> Result<()> {
    let mut waiting = 0;
    let all = async {
        while waiting < claims {
            let event = events.next().await.context("the keeper is gone")?;
            waiting += usize::from(matches!(event.kind, EventKind::Queued { .. }));
        }
        Ok(())
    };
    let limited = tokio::time::timeout(Duration::from_secs(30), all).await;
    limited.with_context(|| format!("in vain: {claims} claims wait"))?
}

/// As [`eventually`], without a runtime.
///
/// # Panics
/// As there.
#[track_caller]
pub fn eventually_so(what: &str, mut is_so: impl FnMut() -> Result<bool>) {
    let begin = Instant::now();
    loop {
        let outcome = is_so();
        if matches!(outcome, Ok(true)) {
            return;
        }
        assert!(begin.elapsed().as_secs() < 30, "in vain: {what} ({outcome:?})");
        std::thread::sleep(Duration::from_millis(20));
    }
}
