//! Many who want one name and have little patience.

use crate::{LONG, PATIENT, cases, far_keeper, keeper, waiting};
use anyhow::{Result, ensure};
use lockkeeper::{ErrorKind, Keeper};
use lockkeeper_lab::dice::Dice;
use lockkeeper_lab::server::Lab;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

cases!(those_who_give_up_leave_nothing_behind, to_give_up_takes_no_look_at_the_whole_queue);

const TASKS: u64 = 12;
const TURNS: u64 = 400;

/// How much longer than its patience a caller is kept while Redis is asked to let the claim go. A
/// caller that is told sooner was told after the answer; later, the claim may leave in the
/// background.
const ANSWERED_WITHIN: Duration = Duration::from_millis(50);
/// Long enough for everyone to be told without an answer.
const PAUSE: Duration = Duration::from_millis(300);

/// Who has given up, by the notes of their claims.
type GivenUp = Arc<Mutex<HashSet<String>>>;

async fn those_who_give_up_leave_nothing_behind(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let keepers = [keeper(&server).await?, keeper(&server).await?];
    let (inside, last) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None)));
    let (held, given_up) = (Arc::new(AtomicUsize::new(0)), GivenUp::default());
    let unanswered = Arc::new(AtomicUsize::new(0));
    let turns = |keeper: Keeper, seed: u64| {
        let (inside, last) = (inside.clone(), last.clone());
        let (held, given_up) = (held.clone(), given_up.clone());
        let unanswered = unanswered.clone();
        async move {
            let mut dice = Dice::new(seed);
            for number in 0..TURNS {
                let patience = Duration::from_micros(dice.roll(5000));
                let note = format!("{seed}/{number}");
                let lock = keeper.lock("given up").note(&note).ttl(LONG);
                let begun = Instant::now();
                let guard = match lock.acquire_within(patience).await {
                    Ok(guard) => guard,
                    Err(error) => {
                        let answered = error.kind() == ErrorKind::TimedOut;
                        if answered && begun.elapsed() < patience + ANSWERED_WITHIN {
                            given_up.lock().expect("no panic").insert(note);
                        } else {
                            unanswered.fetch_add(1, Ordering::SeqCst);
                        }
                        continue;
                    }
                };
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                let before = last.lock().expect("no panic").replace(guard.token());
                assert!(before.is_none_or(|before| before < guard.token()), "tokens grow");
                held.fetch_add(1, Ordering::SeqCst);
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await?;
            }
            anyhow::Ok(())
        }
    };
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        tasks.spawn(turns(keepers[usize::from(number > 8)].clone(), number));
    }
    let (watcher, mut paused) = (keeper(&server).await?, false);
    while !tasks.is_empty() {
        let gone = given_up.lock().expect("no panic").clone();
        let view = watcher.show("given up").await?;
        let notes = view.holders.iter().map(|holder| &holder.note);
        let left = notes.chain(view.waiters.iter().map(|waiter| &waiter.note));
        let left: Vec<_> = left.filter(|note| gone.contains(*note)).collect();
        ensure!(left.is_empty(), "{left:?} had given up, and are in {view:?}");
        // Once in between nobody has an answer, as on a busy machine.
        if !paused && gone.len() > 200 {
            paused = true;
            server.pause()?;
            tokio::time::sleep(PAUSE).await;
            server.resume()?;
        }
        while let Some(done) = tasks.try_join_next() {
            done??;
        }
    }
    let (held, all) = (held.load(Ordering::SeqCst), usize::try_from(TASKS * TURNS)?);
    ensure!((all / 20..all * 19 / 20).contains(&held), "unknown: {held} of {all} had their turn");
    let gone = given_up.lock().expect("no panic").len();
    ensure!(gone >= all / 20, "unknown: {gone} of {all} gave up and had an answer");
    let unanswered = unanswered.load(Ordering::SeqCst);
    ensure!(unanswered > 0, "unknown: everyone who gave up had an answer");
    // Those that had none leave in the background.
    for keeper in keepers {
        ensure!(keeper.close(PATIENT).await, "something is still under way");
    }
    let view = watcher.show("given up").await?;
    ensure!(view.holders.is_empty() && view.waiters.is_empty(), "{view:?}");
    Ok(())
}

async fn to_give_up_takes_no_look_at_the_whole_queue(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, (two, proxy)) = (keeper(&server).await?, far_keeper(&server).await?);
    let held = one.lock("long").note("the one that holds it").ttl(LONG).acquire().await?;
    let (mut crowd, note) = (JoinSet::new(), "n".repeat(500));
    for _ in 0..200 {
        let lock = one.lock("long").note(&note).ttl(LONG);
        crowd.spawn(async move { lock.acquire_within(PATIENT * 2).await?.release().await });
    }
    waiting(&one, "long", 200).await;
    let before = proxy.control().counters().bytes_to_client;
    let limit = Duration::from_millis(100);
    let error = two.lock("long").ttl(LONG).acquire_within(limit).await.expect_err("held");
    let took = proxy.control().counters().bytes_to_client - before;
    ensure!(error.detail("place") == Some("201"), "{error}");
    ensure!(
        error.detail("holder").is_some_and(|who| who.contains("the one that holds it")),
        "{error}"
    );
    // The notes of those who wait have a hundred thousand.
    ensure!(took < 10_000, "{took} bytes, to say who holds it");
    held.release().await?;
    while let Some(done) = crowd.join_next().await {
        done??;
    }
    Ok(())
}
