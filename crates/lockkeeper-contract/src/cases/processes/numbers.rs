//! Processes that are killed while they reserve numbers.

use crate::case::Case;
use crate::cases::{Chosen, cases};
use crate::stage::Stage;
use crate::verdict::{Outcome, ensure, unknown};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    match chosen.capability.sequences {
        true => cases!(
            "sequences":
            a_process_killed_while_it_reserves_leaves_no_number_twice,
            one_that_reserves_without_a_break_keeps_nobody_out,
        ),
        false => Vec::new(),
    }
}

async fn a_process_killed_while_it_reserves_leaves_no_number_twice(stage: Arc<Stage>) -> Outcome {
    let (keeper, name) = (stage.keeper().await?, stage.name("killed"));
    let (mut seen, mut last) = (BTreeSet::new(), 0);
    for _ in 0..3 {
        let mut process = stage.process()?;
        process.tell("a", &format!("reserve count=2 rounds=1000000 name={name}"))?;
        // In the midst of its work.
        for _ in 0..5 {
            process.hear("a").await.map(|answer| seen_by(&mut seen, &answer))??;
        }
        let between = keeper.reserve(&name, 1, 0).await?;
        ensure!(seen.insert(between), "{between} was given twice");
        process.kill()?;
        for answer in process.rest("a").await {
            seen_by(&mut seen, &answer)?;
        }
        let next = keeper.reserve(&name, 1, 0).await?;
        ensure!(seen.insert(next), "{next} was given again after the kill");
        let before = seen.range(..next).next_back().copied().unwrap_or_default();
        ensure!(seen.last() == Some(&next), "{next} is below {before}");
        ensure!(next > last, "{next} came after {last}");
        last = next;
    }
    if seen.len() < 30 {
        unknown!("only {} numbers were given", seen.len());
    }
    Ok(())
}

/// A store that reads and then writes on condition refuses the slower of two: the slower one must get
/// through all the same.
async fn one_that_reserves_without_a_break_keeps_nobody_out(stage: Arc<Stage>) -> Outcome {
    let (keeper, name) = (stage.keeper().await?, stage.name("busy"));
    let mut process = stage.process()?;
    process.tell("a", &format!("reserve count=2 rounds=1000000 name={name}"))?;
    let mut seen = BTreeSet::new();
    process.hear("a").await.map(|answer| seen_by(&mut seen, &answer))??;
    for _ in 0..20 {
        let number = keeper.reserve(&name, 1, 0).await?;
        ensure!(seen.insert(number), "{number} was given twice");
        // As often as this one, the other got through: else nothing was in the way.
        process.hear("a").await.map(|answer| seen_by(&mut seen, &answer))??;
    }
    process.kill()?;
    for answer in process.rest("a").await {
        seen_by(&mut seen, &answer)?;
    }
    Ok(())
}

/// Notes the two numbers of an answer.
fn seen_by(seen: &mut BTreeSet<u64>, answer: &str) -> Outcome {
    let first = answer.strip_prefix("reserved ").and_then(|first| first.parse::<u64>().ok());
    let Some(first) = first else { unknown!("the process said {answer:?}") };
    for number in [first, first + 1] {
        ensure!(seen.insert(number), "{number} was given twice");
    }
    Ok(())
}
