//! Small records, changed only by those who know what they say.

use super::cases;
use super::names::nasty;
use super::sequences::sequencer;
use crate::case::Case;
use crate::stage::Stage;
use crate::verdict::{Outcome, ensure, unknown};
use lockkeeper::backend::LONGEST_RECORD;
use lockkeeper::{ErrorKind, Name};
use std::sync::Arc;
use tokio::task::JoinSet;

pub(super) fn cases() -> Vec<Case> {
    cases!("sequences":
        a_record_is_begun_once,
        a_chain_of_writes_loses_none,
        a_record_that_says_otherwise_is_left_alone,
        a_lost_answer_leaves_a_record_as_it_was_or_written,
        records_are_listed_by_prefix_and_in_order,
        records_of_odd_names_are_apart,
        what_records_say_comes_back_as_it_was,
    )
}

async fn a_record_is_begun_once(stage: Arc<Stage>) -> Outcome {
    let name = Name::new(&stage.name("begun"))?;
    let ((_one, first), (_two, second)) = (stage.opened().await?, stage.opened().await?);
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let (backend, name) = (if task % 2 == 0 { &first } else { &second }.clone(), name.clone());
        tasks.spawn(async move {
            let written = sequencer(&*backend)?.write(&name, &format!("task {task}"), None).await?;
            Outcome::Ok(written.then_some(task))
        });
    }
    let mut winners = Vec::new();
    while let Some(won) = tasks.join_next().await {
        winners.extend(won??);
    }
    ensure!(winners.len() == 1, "it was begun by {winners:?}");
    for backend in [&first, &second] {
        let says = sequencer(&**backend)?.read(&name).await?;
        let right = format!("task {}", winners[0]);
        ensure!(says.as_deref() == Some(&right), "{right} wrote it, and it says {says:?}");
    }
    Ok(())
}

async fn a_chain_of_writes_loses_none(stage: Arc<Stage>) -> Outcome {
    const EACH: u32 = 6;
    let name = Name::new(&stage.name("chain"))?;
    let ((_one, first), (_two, second)) = (stage.opened().await?, stage.opened().await?);
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let (backend, name) = (if task % 2 == 0 { &first } else { &second }.clone(), name.clone());
        tasks.spawn(async move {
            let (sequencer, mut failed) = (sequencer(&*backend)?, 0);
            for _ in 0..EACH {
                loop {
                    let says = sequencer.read(&name).await?;
                    let number: u32 = says.as_deref().unwrap_or("0").parse()?;
                    let next = (number + 1).to_string();
                    if sequencer.write(&name, &next, says.as_deref()).await? {
                        break;
                    }
                    failed += 1;
                }
            }
            Outcome::Ok(failed)
        });
    }
    let mut failed = 0;
    while let Some(task) = tasks.join_next().await {
        failed += task??;
    }
    let says = sequencer(&*first)?.read(&name).await?;
    let right = (8 * EACH).to_string();
    ensure!(says.as_deref() == Some(&right), "{right} was to be reached, and it says {says:?}");
    // In memory nothing comes in between of a read and a write unless a thread is interrupted there.
    if failed == 0
        && stage.backend().await?.capability().reach > lockkeeper::backend::Reach::Process
    {
        unknown!("no write met another");
    }
    Ok(())
}

async fn a_record_that_says_otherwise_is_left_alone(stage: Arc<Stage>) -> Outcome {
    let (_keeper, backend) = stage.opened().await?;
    let (sequencer, name) = (sequencer(&*backend)?, Name::new(&stage.name("otherwise"))?);
    let steps = [
        ("a", Some("a"), false, None),
        ("a", Some(""), false, None),
        ("a", None, true, Some("a")),
        ("b", None, false, Some("a")),
        ("b", Some("b"), false, Some("a")),
        ("b", Some("A"), false, Some("a")),
        ("b", Some("a "), false, Some("a")),
        ("b", Some(""), false, Some("a")),
        ("a", Some("a"), true, Some("a")),
        ("a ", Some("a"), true, Some("a ")),
        ("b", Some("a"), false, Some("a ")),
        ("", Some("a "), true, Some("")),
        ("c", None, false, Some("")),
        ("c", Some(""), true, Some("c")),
    ];
    for (value, expected, written, says) in steps {
        let did = sequencer.write(&name, value, expected).await?;
        let now = sequencer.read(&name).await?;
        let right = did == written && now.as_deref() == says;
        ensure!(right, "{value:?} instead of {expected:?} gave {did}, and it says {now:?}");
    }
    Ok(())
}

async fn a_lost_answer_leaves_a_record_as_it_was_or_written(stage: Arc<Stage>) -> Outcome {
    let (keeper, faulty) = stage.faulty().await?;
    let (sequencer, name) = (sequencer(&*faulty)?, Name::new(&stage.name("lost"))?);
    ensure!(sequencer.write(&name, "one", None).await?, "it was there");
    faulty.lose_answers(1);
    let lost = sequencer.write(&name, "two", Some("one")).await.map_err(|error| error.kind());
    ensure!(lost == Err(ErrorKind::Unavailable), "an answer that was lost is {lost:?}");
    let says = sequencer.read(&name).await?;
    ensure!(says.as_deref() == Some("two"), "the store wrote it, and it says {says:?}");
    ensure!(!sequencer.write(&name, "two", Some("one")).await?, "it was written twice");
    drop(keeper);
    Ok(())
}

async fn records_are_listed_by_prefix_and_in_order(stage: Arc<Stage>) -> Outcome {
    let (_keeper, backend) = stage.opened().await?;
    let sequencer = sequencer(&*backend)?;
    let tails = ["p%x", "pyx", "p_x", "P%x", "p*x", "p[y]x", "p\\x", "pü", "pz", "p", "p/1", "p/2"];
    let mut all = Vec::new();
    for tail in tails {
        let name = Name::new(&stage.name(tail))?;
        // What begins like a record and is none.
        sequencer.reserve(&name, &lockkeeper::backend::Reserve::new(1)).await?;
        ensure!(sequencer.write(&name, &format!("of {tail}"), None).await?, "{tail} was there");
        all.push((name, format!("of {tail}")));
    }
    all.sort();
    for start in ["p%", "p_", "P", "p*", "p[y]", "p\\", "pü", "py", "p/", "p", "q", ""] {
        let prefix = format!("{}{start}", stage.prefix());
        let listed = sequencer.list(&prefix).await?;
        let right: Vec<_> =
            all.iter().filter(|(name, _)| name.as_str().starts_with(&prefix)).cloned().collect();
        ensure!(listed == right, "{start:?} lists {listed:?}");
    }
    Ok(())
}

async fn records_of_odd_names_are_apart(stage: Arc<Stage>) -> Outcome {
    let (_keeper, backend) = stage.opened().await?;
    let sequencer = sequencer(&*backend)?;
    let mut all = Vec::new();
    for (number, name) in nasty(&stage).iter().enumerate() {
        let (name, value) = (Name::new(name)?, format!("number {number}"));
        ensure!(sequencer.write(&name, &value, None).await?, "{name} is another's");
        all.push((name, value));
    }
    for (name, value) in &all {
        let says = sequencer.read(name).await?;
        ensure!(says.as_ref() == Some(value), "{name} says {says:?}");
    }
    all.sort();
    let listed = sequencer.list(stage.prefix()).await?;
    ensure!(listed == all, "listed are {listed:?}");
    Ok(())
}

async fn what_records_say_comes_back_as_it_was(stage: Arc<Stage>) -> Outcome {
    let (_keeper, backend) = stage.opened().await?;
    let (sequencer, name) = (sequencer(&*backend)?, Name::new(&stage.name("says"))?);
    let longest = "x".repeat(LONGEST_RECORD);
    let wide = "🔒".repeat(LONGEST_RECORD / 4);
    let mut before: Option<&str> = None;
    for value in
        ["", " ", "'quoted' \"twice\"", "\\0 %s $1", "NULL", "é 🔒 \u{202e}", &longest, &wide]
    {
        ensure!(sequencer.write(&name, value, before).await?, "{value:?} was not written");
        let says = sequencer.read(&name).await?;
        ensure!(says.as_deref() == Some(value), "{value:?} came back as {says:?}");
        before = Some(value);
    }
    for refused in [format!("{longest}x"), "two\nlines".to_owned(), "\0".to_owned()] {
        let kind = sequencer.write(&name, &refused, before).await.map_err(|error| error.kind());
        ensure!(kind == Err(ErrorKind::Config), "{refused:?} gave {kind:?}");
    }
    let says = sequencer.read(&name).await?;
    ensure!(says.as_deref() == before, "what was refused was written: {says:?}");
    Ok(())
}
