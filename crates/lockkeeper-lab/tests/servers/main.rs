//! The lab's servers, each for real: they start, form groups, can be broken, and leave nothing.

mod breaking;
mod child;
mod databases;
mod groups;
mod leaving;
mod limits;
mod starting;
mod time;

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use lockkeeper_lab::server::{Kind, Lab, missing};
use lockkeeper_lab::trials::eventually_so as eventually;
use std::sync::Arc;

type Case = (&'static str, &'static [Kind], fn(&Lab) -> Result<()>);

fn trial(lab: &Arc<Lab>, (name, kinds, case): Case) -> Trial {
    let lab = Arc::clone(lab);
    let run = move || case(&lab).map_err(|error| Failed::from(format!("{error:?}")));
    match missing(kinds) {
        Some(reason) => {
            Trial::test(name, run).with_kind(reason.to_string()).with_ignored_flag(true)
        }
        None => Trial::test(name, run),
    }
}

fn main() -> Result<()> {
    if let Ok(part) = std::env::var(child::PART) {
        return child::play(&part);
    }
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(4);
    let lab = Arc::new(Lab::open()?);
    let cases = [
        starting::CASES,
        groups::CASES,
        breaking::CASES,
        time::CASES,
        limits::CASES,
        databases::CASES,
        leaving::CASES,
    ];
    let trials = cases.into_iter().flatten().map(|case| trial(&lab, *case)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(lab);
    conclusion.exit();
}
