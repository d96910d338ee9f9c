//! Processes that exclude each other.

use crate::case::Case;
use crate::cases::{Chosen, cases, cases_of_each_kind};
use crate::kind::Kind;
use crate::process::Process;
use crate::stage::{LONG, PATIENT, Stage, free, ms, taken};
use crate::verdict::{Outcome, ensure, unknown};
use lockkeeper::backend::Moment;
use std::sync::Arc;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    let mut cases = cases_of_each_kind!(chosen, "processes": five_processes_exclude_each_other);
    cases.extend(cases!("processes": a_process_waits_for_another));
    if chosen.capability.permits {
        cases.extend(cases!("processes": permits_are_never_too_many));
    }
    if chosen.capability.shared {
        cases.extend(cases!("processes": readers_share_and_a_writer_waits));
    }
    if chosen.capability.reentrant {
        cases.extend(cases!("processes": an_owner_enters_again_in_another_process));
    }
    if chosen.capability.min_hold {
        cases.extend(cases!("processes": min_hold_outlasts_the_process));
    }
    if chosen.capability.fencing {
        cases.extend(cases!("processes": tokens_grow_from_process_to_process));
    }
    cases
}

const ROUNDS: usize = 8;

async fn five_processes_exclude_each_other(stage: Arc<Stage>, kind: Kind) -> Outcome {
    crowd(&stage, kind.word(), 5, 1).await
}

async fn permits_are_never_too_many(stage: Arc<Stage>) -> Outcome {
    crowd(&stage, "permit:2", 4, 2).await
}

/// This many processes enter and leave a room that admits `limit` at once.
async fn crowd(stage: &Stage, mode: &str, processes: usize, limit: usize) -> Outcome {
    let name = stage.name("contended");
    let room = stage.room()?;
    let mut crowd: Vec<Process> = Vec::new();
    for _ in 0..processes {
        crowd.push(stage.process()?);
    }
    // No process begins before all are ready.
    for process in &mut crowd {
        process.hear("-").await?;
    }
    let place = room.path().display();
    for process in &mut crowd {
        let order = format!("visit rounds={ROUNDS} mode={mode} ttl=20000 room={place} name={name}");
        process.tell("a", &order)?;
    }
    let (mut most, mut waited) = (0, 0);
    for process in &mut crowd {
        let answer = process.hear("a").await?;
        let number = |key: &str| -> Option<usize> {
            answer.split(' ').find_map(|word| word.strip_prefix(key)?.parse().ok())
        };
        let (Some(inside), Some(times)) = (number("most="), number("waited=")) else {
            unknown!("a process says {answer:?}");
        };
        most = most.max(inside);
        waited += times;
    }
    ensure!(most <= limit, "{most} were inside at once, where {limit} may be");
    let (updates, expected) = (room.number()?, processes * ROUNDS);
    ensure!(limit > 1 || updates == expected, "of {expected} updates {updates} are left");
    if waited == 0 || (limit > 1 && most < 2) {
        unknown!("{waited} times a process had to wait, and {most} were inside at once");
    }
    Ok(())
}

async fn a_process_waits_for_another(stage: Arc<Stage>) -> Outcome {
    let (keeper, mut process) = (stage.keeper().await?, stage.process()?);
    let name = stage.name("awaited");
    let guard = keeper.lock(&name).ttl(LONG).acquire().await?;
    let tried = process.ask("try", &format!("take wait=none name={name}")).await?;
    ensure!(tried == "busy", "another process was told {tried:?}");
    // Long enough for the store to say that it is taken, also on a busy machine.
    let late = process.ask("late", &format!("take wait=1500 name={name}")).await?;
    ensure!(late.starts_with("error TimedOut"), "another process was told {late:?}");
    process.tell("a", &format!("take ttl=20000 name={name}"))?;
    tokio::time::sleep(ms(100)).await;
    ensure!(process.is_silent("a"), "the process did not wait");
    guard.release().await?;
    process.granted("a").await?;
    taken(&keeper, &name).await?;
    ensure!(process.ask("a", "release").await? == "released", "it could not be released");
    free(&keeper, &name).await
}

async fn readers_share_and_a_writer_waits(stage: Arc<Stage>) -> Outcome {
    let (keeper, mut process) = (stage.keeper().await?, stage.process()?);
    let name = stage.name("read");
    process.take("a", &format!("mode=shared ttl=20000 name={name}")).await?;
    let reader = keeper.rw_lock(&name).read().ttl(LONG).try_acquire().await?;
    ensure!(reader.is_some(), "a reader was kept out by a reader of another process");
    drop(reader);
    ensure!(keeper.close(PATIENT).await, "the reader did not leave");
    taken(&keeper, &name).await?;
    process.ask("a", "release").await?;
    free(&keeper, &name).await
}

async fn an_owner_enters_again_in_another_process(stage: Arc<Stage>) -> Outcome {
    let (keeper, mut process) = (stage.keeper().await?, stage.process()?);
    let (name, me) = (stage.name("resumed"), keeper.owner("me"));
    let outer = keeper.lock(&name).ttl(LONG).owner(&me).acquire().await?;
    let terms = format!("take wait=none ttl=20000 owner={me} name={name}");
    let answer = process.ask("a", &terms).await?;
    let token = outer.token().map_or("-".into(), |token| token.to_string());
    ensure!(answer == format!("held {token}"), "the child was told {answer:?}, not {token}");
    outer.release().await?;
    taken(&keeper, &name).await?;
    process.ask("a", "release").await?;
    free(&keeper, &name).await
}

async fn min_hold_outlasts_the_process(stage: Arc<Stage>) -> Outcome {
    let (keeper, mut process) = (stage.keeper().await?, stage.process()?);
    let name = stage.name("lingering");
    process.hear("-").await?;
    let least = ms(1200);
    let before = Moment::now();
    process.take("a", &format!("min=1200 ttl={} name={name}", stage.ttl_ms(400))).await?;
    let answer = process.ask("a", "release").await?;
    ensure!(answer == "released", "releasing said {answer:?}");
    process.kill()?;
    let next = keeper.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
    let kept = Moment::now().since(before);
    ensure!(kept >= least, "min_hold {least:?} kept it for {kept:?}");
    next.release().await?;
    Ok(())
}

async fn tokens_grow_from_process_to_process(stage: Arc<Stage>) -> Outcome {
    let name = stage.name("fenced");
    let mut last = 0;
    for _ in 0..3 {
        let mut process = stage.process()?;
        let token = process.take("a", &format!("ttl=20000 name={name}")).await?;
        ensure!(token > last, "after {last} came {token}");
        last = token;
        process.ask("a", "release").await?;
        process.kill()?;
    }
    Ok(())
}
