//! Across processes, some of which are paused and killed.

mod death;
mod numbers;
mod queue;
mod tickets;
mod together;

use super::Chosen;
use crate::case::Case;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    let mut cases = together::cases(chosen);
    cases.extend(death::cases(chosen));
    cases.extend(queue::cases(chosen));
    cases.extend(numbers::cases(chosen));
    cases.extend(tickets::cases(chosen));
    cases
}
