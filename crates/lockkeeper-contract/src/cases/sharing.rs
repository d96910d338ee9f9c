//! Many readers or one writer.

use super::{Chosen, cases};
use crate::case::Case;
use crate::stage::{LONG, PATIENT, Stage, eventually, ms, queue_of, queues};
use crate::verdict::{Outcome, ensure, unknown};
use lockkeeper::backend::Mode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    if !chosen.capability.shared {
        return Vec::new();
    }
    let mut cases = cases!("sharing":
        readers_share,
        a_writer_excludes_readers,
        readers_exclude_a_writer,
        readers_and_writers_never_meet,
    );
    if chosen.capability.permits {
        cases.extend(cases!("sharing": modes_do_not_mix));
    }
    if chosen.capability.fair {
        cases.extend(cases!("sharing": a_writer_is_not_starved_by_readers));
    }
    if queues(&chosen.capability, chosen.inspects) {
        cases.extend(cases!("sharing":
            a_reader_waits_behind_a_writer_that_waits,
            readers_behind_a_writer_get_in_together,
        ));
    }
    cases
}

async fn readers_share(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("read");
    let mut readers = Vec::new();
    for keeper in [&one, &two, &one, &two, &one] {
        let reader = keeper.rw_lock(&name).read().ttl(LONG).try_acquire().await?;
        ensure!(reader.is_some(), "reader {} was kept out by readers", readers.len() + 1);
        readers.extend(reader);
    }
    ensure!(readers.iter().all(|r| r.is_held() && r.mode() == Mode::Shared), "not all hold it");
    Ok(())
}

async fn a_writer_excludes_readers(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("written");
    let writer = one.rw_lock(&name).write().ttl(LONG).acquire().await?;
    let reader = two.rw_lock(&name).read().try_acquire().await?;
    ensure!(reader.is_none(), "a reader got in beside the writer");
    writer.release().await?;
    let reader = two.rw_lock(&name).read().ttl(LONG).try_acquire().await?;
    ensure!(reader.is_some(), "the writer left and yet no reader gets in");
    Ok(())
}

async fn readers_exclude_a_writer(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("read");
    let first = one.rw_lock(&name).read().ttl(LONG).acquire().await?;
    let second = two.rw_lock(&name).read().ttl(LONG).acquire().await?;
    let write = two.rw_lock(&name).write().ttl(LONG);
    ensure!(write.try_acquire().await?.is_none(), "a writer got in beside two readers");
    first.release().await?;
    ensure!(write.try_acquire().await?.is_none(), "a writer got in beside one reader");
    second.release().await?;
    ensure!(write.try_acquire().await?.is_some(), "the readers left and yet no writer gets in");
    Ok(())
}

async fn modes_do_not_mix(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let name = stage.name("mixed");
    let reader = keeper.rw_lock(&name).read().ttl(LONG).acquire().await?;
    let permit = keeper.semaphore(&name, 5).ttl(LONG);
    ensure!(permit.try_acquire().await?.is_none(), "a permit stands beside a reader");
    reader.release().await?;
    let permit = permit.acquire().await?;
    let reader = keeper.rw_lock(&name).read().try_acquire().await?;
    ensure!(reader.is_none(), "a reader stands beside a permit");
    ensure!(keeper.lock(&name).try_acquire().await?.is_none(), "a lock stands beside a permit");
    permit.release().await?;
    Ok(())
}

async fn readers_and_writers_never_meet(stage: Arc<Stage>) -> Outcome {
    const WRITING: isize = 1000;
    let name = stage.name("met");
    let inside = Arc::new(AtomicIsize::new(0));
    let (broken, together, waited) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    // It is held until everyone has found it held: where the store is slow, a visit is over before
    // the next one asks, and nobody would meet anybody.
    let first = stage.keeper().await?.rw_lock(&name).write().ttl(LONG).acquire().await?;
    let mut tasks = Vec::new();
    for number in 0..6 {
        let keeper = stage.keeper().await?;
        let writes = number % 3 == 0;
        let rw_lock = keeper.rw_lock(&name).ttl(LONG);
        let lock = if writes { rw_lock.write() } else { rw_lock.read() };
        let weight = if writes { WRITING } else { 1 };
        let (inside, broken, together, waited) =
            (inside.clone(), broken.clone(), together.clone(), waited.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..6 {
                let guard = match lock.try_acquire().await? {
                    Some(guard) => guard,
                    None => {
                        waited.fetch_add(1, Ordering::SeqCst);
                        lock.acquire().await?
                    }
                };
                let there = inside.fetch_add(weight, Ordering::SeqCst);
                let allowed = if writes { there == 0 } else { there < WRITING };
                broken.fetch_or(!allowed, Ordering::SeqCst);
                together.fetch_or(!writes && there > 0, Ordering::SeqCst);
                tokio::time::sleep(ms(3)).await;
                // The first readers wait for each other, but not for one that is behind a writer.
                for _ in 0..100 {
                    if writes || together.load(Ordering::SeqCst) {
                        break;
                    }
                    tokio::time::sleep(ms(3)).await;
                }
                inside.fetch_sub(weight, Ordering::SeqCst);
                guard.release().await?;
            }
            Ok::<(), lockkeeper::Error>(())
        }));
    }
    let busy = async || Ok((waited.load(Ordering::SeqCst) >= tasks.len()).then_some(()));
    eventually("everyone finds it held", busy).await?;
    first.release().await?;
    for task in tasks {
        task.await??;
    }
    ensure!(!broken.load(Ordering::SeqCst), "a writer was inside with others");
    if waited.load(Ordering::SeqCst) == 0 || !together.load(Ordering::SeqCst) {
        unknown!("nobody had to wait, or no two readers were inside together");
    }
    Ok(())
}

async fn a_writer_is_not_starved_by_readers(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("crowded");
    let enough = Arc::new(AtomicBool::new(false));
    let mut readers = Vec::new();
    for number in 0..4 {
        let (lock, enough) = (one.rw_lock(&name).read().ttl(LONG), enough.clone());
        // Each comes while the others are still inside, so that there is always a reader.
        tokio::time::sleep(ms(10)).await;
        readers.push(tokio::spawn(async move {
            let mut rounds = 0;
            while !enough.load(Ordering::SeqCst) && rounds < 2000 {
                let guard = lock.acquire().await?;
                tokio::time::sleep(ms(40)).await;
                guard.release().await?;
                rounds += 1;
            }
            Ok::<usize, lockkeeper::Error>(rounds + number)
        }));
    }
    let writer = two.rw_lock(&name).write().ttl(LONG).acquire_within(PATIENT).await;
    enough.store(true, Ordering::SeqCst);
    writer?.release().await?;
    for reader in readers {
        reader.await??;
    }
    Ok(())
}

async fn a_reader_waits_behind_a_writer_that_waits(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("behind");
    let reader = one.rw_lock(&name).read().ttl(LONG).acquire().await?;
    let write = two.rw_lock(&name).write().ttl(LONG);
    let writer = tokio::spawn(async move { write.acquire_within(PATIENT).await });
    queue_of(&one, &name, 1).await?;
    let late = one.rw_lock(&name).read().try_acquire().await?;
    ensure!(late.is_none(), "a reader overtook a writer that waits");
    reader.release().await?;
    writer.await??.release().await?;
    Ok(())
}

async fn readers_behind_a_writer_get_in_together(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("together");
    let writer = one.rw_lock(&name).write().ttl(LONG).acquire().await?;
    let mut readers = Vec::new();
    for number in 0..3 {
        let lock = two.rw_lock(&name).read().ttl(LONG);
        readers.push(tokio::spawn(async move { lock.acquire_within(PATIENT).await }));
        queue_of(&one, &name, number + 1).await?;
    }
    writer.release().await?;
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(reader.await??);
    }
    ensure!(guards.iter().all(|guard| guard.is_held()), "the readers did not get in together");
    Ok(())
}
