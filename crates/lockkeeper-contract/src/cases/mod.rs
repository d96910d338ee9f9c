//! The promises, by group.

mod absent;
mod bearers;
mod blocking;
mod bounds;
mod by_id;
mod cancel;
mod doubt;
mod election;
mod events;
mod exclusion;
mod expiry;
mod fairness;
mod guards;
mod inspection;
mod loss;
mod multi;
mod names;
mod permits;
mod portable;
#[cfg(unix)]
mod processes;
mod records;
mod reentry;
mod sequences;
mod sharing;
mod tickets;
mod tokens;
mod untried;
mod waiting;

use crate::case::Case;
use lockkeeper::backend::{Capability, Reach};

/// What the choice of cases depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chosen {
    pub(crate) capability: Capability,
    pub(crate) inspects: bool,
}

/// Every case for a backend of this capability.
pub(crate) fn all(capability: &Capability, inspects: bool, crossing: bool) -> Vec<Case> {
    let chosen = Chosen { capability: *capability, inspects };
    let mut cases = Vec::new();
    for group in [
        exclusion::cases,
        waiting::cases,
        expiry::cases,
        loss::cases,
        doubt::cases,
        cancel::cases,
        fairness::cases,
        sharing::cases,
        permits::cases,
        reentry::cases,
        tokens::cases,
        names::cases,
        bounds::cases,
        guards::cases,
        multi::cases,
        election::cases,
        inspection::cases,
        events::cases,
        blocking::cases,
        absent::cases,
        portable::cases,
        tickets::cases,
        bearers::cases,
        by_id::cases,
        sequences::cases,
    ] {
        cases.extend(group(&chosen));
    }
    if capability.reach > Reach::Process {
        cases.extend(across_processes(&chosen, crossing));
    }
    cases
}

#[cfg(unix)]
fn across_processes(chosen: &Chosen, crossing: bool) -> Vec<Case> {
    if crossing { processes::cases(chosen) } else { untried::cases() }
}

#[cfg(not(unix))]
fn across_processes(_: &Chosen, _: bool) -> Vec<Case> {
    untried::cases()
}

/// The cases of a group; the name of each function is its promise.
macro_rules! cases {
    ($group:literal: $($case:ident),+ $(,)?) => {
        vec![$($crate::case::Case::new($group, stringify!($case), $case)),+]
    };
}

/// The cases of a group that hold for every [`Kind`](crate::kind::Kind) of lock.
macro_rules! cases_of_each_kind {
    ($chosen:expr, $group:literal: $($case:ident),+ $(,)?) => {{
        let mut cases = Vec::new();
        for kind in $crate::kind::Kind::all(&$chosen.capability) {
            $(
                let promise = format!("{}{}", stringify!($case), kind.suffix());
                cases.push($crate::case::Case::new($group, promise, move |stage| {
                    $case(stage, kind)
                }));
            )+
        }
        cases
    }};
}

pub(crate) use {cases, cases_of_each_kind};
