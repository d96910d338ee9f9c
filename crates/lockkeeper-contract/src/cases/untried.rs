//! Reported for a backend with a wider reach than the suite was able to test.

use super::cases;
use crate::case::Case;
use crate::stage::Stage;
use crate::verdict::{Outcome, unknown};
use std::sync::Arc;

pub(super) fn cases() -> Vec<Case> {
    cases!("processes": they_can_be_tried)
}

async fn they_can_be_tried(_: Arc<Stage>) -> Outcome {
    unknown!("it reaches beyond one process, but it cannot be reached from another here")
}
