//! Numbers that nobody else gets.

use super::names::nasty;
use super::{Chosen, cases, records};
use crate::case::Case;
use crate::stage::{LONG, PATIENT, Stage};
use crate::verdict::{Failure, Outcome, ensure, unknown};
use lockkeeper::backend::{Backend, LAST_NUMBER, Reserve, Reserved, Sequencer};
use lockkeeper::{ErrorKind, Keeper, Name};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::task::JoinSet;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    if !chosen.capability.sequences {
        return Vec::new();
    }
    let mut cases = cases!("sequences":
        numbers_of_two_keepers_never_meet_and_grow,
        a_floor_is_kept,
        what_passes_a_ceiling_reserves_nothing,
        what_must_be_there_is_not_begun,
        they_end_and_never_begin_again,
        lost_answers_leave_gaps_and_no_number_twice,
        many_at_once_get_numbers_of_their_own,
        many_at_once_under_a_ceiling_share_all_of_it,
        no_two_names_are_one,
        numbers_records_and_locks_of_a_name_are_apart,
        the_clock_does_not_go_back,
        auto_increments_ascend_and_are_unique,
    );
    cases.extend(records::cases());
    cases
}

/// A backend that promises sequences has them.
pub(super) fn sequencer(backend: &dyn Backend) -> Outcome<&dyn Sequencer> {
    backend.sequencer().ok_or_else(|| Failure::broken("it has no sequencer"))
}

/// All numbers of this answer, which must have some.
fn numbers(reserved: Reserved, count: u32) -> Outcome<Vec<u64>> {
    let Reserved::From(first) = reserved else {
        return Err(Failure::broken(format!("instead of {count} numbers came {reserved:?}")));
    };
    Ok((first..first + u64::from(count)).collect())
}

async fn numbers_of_two_keepers_never_meet_and_grow(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("invoices");
    let mut last = 0;
    for count in 1..20 {
        let keeper = if count % 2 == 0 { &one } else { &two };
        let first = keeper.reserve(&name, count, 0).await?;
        ensure!(first > last, "{count} numbers from {first} on, after {last}");
        ensure!(last > 0 || first == 1, "the first number is {first}");
        last = first + u64::from(count) - 1;
    }
    let none = one.reserve(&name, 0, 0).await.err().map(|error| error.kind());
    ensure!(none == Some(ErrorKind::Config), "no numbers at all gave {none:?}");
    Ok(())
}

async fn a_floor_is_kept(stage: Arc<Stage>) -> Outcome {
    let (_keeper, backend) = stage.opened().await?;
    let (sequencer, name) = (sequencer(&*backend)?, Name::new(&stage.name("floor"))?);
    let reserve = async |count, floor| -> Outcome<Reserved> {
        Ok(sequencer.reserve(&name, &Reserve::new(count).from(floor)).await?)
    };
    // Beyond 2^53, where a float is not exact any more.
    let far = (1 << 53) + 1;
    for (count, floor, first) in [
        (3, 0, 1),
        (2, 4, 4),
        (10, 1000, 1000),
        (1, 5, 1010),
        (4, far, far),
        (1, far, far + 4),
        (1, 0, far + 5),
    ] {
        let reserved = reserve(count, floor).await?;
        ensure!(reserved == Reserved::From(first), "{count} from {floor} on gave {reserved:?}");
    }
    Ok(())
}

async fn what_passes_a_ceiling_reserves_nothing(stage: Arc<Stage>) -> Outcome {
    let (_keeper, backend) = stage.opened().await?;
    let (sequencer, name) = (sequencer(&*backend)?, Name::new(&stage.name("ceiling"))?);
    let ten = |count| Reserve::new(count).up_to(10);
    for (wish, expected) in [
        (ten(11), Reserved::Beyond(0)),
        (ten(1).of_existing(), Reserved::Missing),
        (ten(8), Reserved::From(1)),
        (ten(3), Reserved::Beyond(8)),
        (ten(1).from(11), Reserved::Beyond(8)),
        (ten(2).from(10), Reserved::Beyond(8)),
        (ten(2), Reserved::From(9)),
        (ten(1), Reserved::Beyond(10)),
        (ten(1).of_existing(), Reserved::Beyond(10)),
        (Reserve::new(1), Reserved::From(11)),
        (ten(1), Reserved::Beyond(11)),
        (Reserve::new(2).from(20).up_to(21), Reserved::From(20)),
        (Reserve::new(1).up_to(0), Reserved::Beyond(21)),
    ] {
        let reserved = sequencer.reserve(&name, &wish).await?;
        ensure!(reserved == expected, "{wish:?} gave {reserved:?}, and not {expected:?}");
    }
    Ok(())
}

async fn what_must_be_there_is_not_begun(stage: Arc<Stage>) -> Outcome {
    let (_keeper, backend) = stage.opened().await?;
    let (sequencer, name) = (sequencer(&*backend)?, Name::new(&stage.name("there"))?);
    let existing = Reserve::new(2).of_existing();
    for _ in 0..3 {
        let reserved = sequencer.reserve(&name, &existing.from(100)).await?;
        ensure!(reserved == Reserved::Missing, "one that is not there gave {reserved:?}");
    }
    let begun = sequencer.reserve(&name, &Reserve::new(3)).await?;
    ensure!(begun == Reserved::From(1), "it was begun before: {begun:?}");
    let gone_on = sequencer.reserve(&name, &existing).await?;
    ensure!(gone_on == Reserved::From(4), "one that is there gave {gone_on:?}");
    let raised = sequencer.reserve(&name, &existing.from(50)).await?;
    ensure!(raised == Reserved::From(50), "the floor of one that is there gave {raised:?}");
    Ok(())
}

async fn they_end_and_never_begin_again(stage: Arc<Stage>) -> Outcome {
    let (keeper, backend) = stage.opened().await?;
    let (sequencer, name) = (sequencer(&*backend)?, stage.name("end"));
    let (near, counted) = (LAST_NUMBER - 4, Name::new(&name)?);
    for (wish, expected) in [
        (Reserve::new(6).from(near), Reserved::Beyond(0)),
        (Reserve::new(1).from(u64::MAX), Reserved::Beyond(0)),
        (Reserve::new(3).from(near), Reserved::From(near)),
        (Reserve::new(3), Reserved::Beyond(near + 2)),
        (Reserve::new(2), Reserved::From(near + 3)),
        (Reserve::new(1), Reserved::Beyond(LAST_NUMBER)),
        (Reserve::new(1), Reserved::Beyond(LAST_NUMBER)),
        (Reserve::new(u32::MAX), Reserved::Beyond(LAST_NUMBER)),
        (Reserve::new(1).from(7), Reserved::Beyond(LAST_NUMBER)),
        (Reserve::new(1).of_existing(), Reserved::Beyond(LAST_NUMBER)),
    ] {
        let reserved = sequencer.reserve(&counted, &wish).await?;
        ensure!(reserved == expected, "{wish:?} gave {reserved:?}, and not {expected:?}");
    }
    for floor in [0, 1, u64::MAX] {
        let kind = keeper.reserve(&name, 1, floor).await.map_err(|error| error.kind());
        ensure!(kind == Err(ErrorKind::Config), "behind the end came {kind:?}");
    }
    Ok(())
}

async fn lost_answers_leave_gaps_and_no_number_twice(stage: Arc<Stage>) -> Outcome {
    let (other, (keeper, faulty)) = (stage.keeper().await?, stage.faulty().await?);
    let name = stage.name("lost");
    let (mut seen, mut last) = (BTreeSet::new(), 0);
    for round in 0..12 {
        if round % 3 == 1 {
            faulty.lose_answers(1);
            let lost = keeper.reserve(&name, 2, 0).await.map_err(|error| error.kind());
            ensure!(lost == Err(ErrorKind::Unavailable), "an answer that was lost is {lost:?}");
        }
        for keeper in [&keeper, &other] {
            let first = keeper.reserve(&name, 2, 0).await?;
            ensure!(first > last, "{first} came after {last}");
            ensure!(seen.insert(first) && seen.insert(first + 1), "{first} was given twice");
            last = first + 1;
        }
    }
    // What was lost is a gap: 24 pairs were given, and four were lost.
    ensure!(last >= 2 * (24 + 4), "the numbers of a lost answer were given again: {last}");
    Ok(())
}

/// The numbers that tasks of two keepers get, each of its own; each task's must grow.
async fn crowd(
    stage: &Stage,
    name: &str,
    rounds: u32,
    wish: fn(u32) -> Reserve,
) -> Outcome<(BTreeSet<u64>, usize)> {
    let mut tasks = JoinSet::new();
    let mut keepers = Vec::new();
    for keeper in 0..2 {
        let (owner, backend) = stage.opened().await?;
        keepers.push(owner);
        for task in 0..8 {
            let (backend, name) = (backend.clone(), Name::new(name)?);
            tasks.spawn(async move {
                let sequencer = sequencer(&*backend)?;
                let (mut own, mut last) = (Vec::new(), 0);
                for round in 0..rounds {
                    let wish = wish(keeper + task + round);
                    let reserved = sequencer.reserve(&name, &wish).await?;
                    if matches!(reserved, Reserved::Beyond(_)) && wish.ceiling < LAST_NUMBER {
                        break;
                    }
                    let got = numbers(reserved, wish.count)?;
                    ensure!(got[0] > last, "a task got {} after {last}", got[0]);
                    last = got[got.len() - 1];
                    own.extend(got);
                }
                Outcome::Ok(own)
            });
        }
    }
    let (mut all, mut count) = (BTreeSet::new(), 0);
    while let Some(own) = tasks.join_next().await {
        for number in own?? {
            count += 1;
            ensure!(all.insert(number), "{number} was given twice");
        }
    }
    Ok((all, count))
}

async fn many_at_once_get_numbers_of_their_own(stage: Arc<Stage>) -> Outcome {
    let name = stage.name("crowd");
    let (all, count) = crowd(&stage, &name, 6, |turn| Reserve::new(1 + turn % 3)).await?;
    ensure!(all.len() == count && count >= 2 * 8 * 6, "only {} of {count}", all.len());
    // Nobody's answer was lost, so there are no gaps.
    let last = all.last().copied().unwrap_or_default();
    ensure!(usize::try_from(last) == Ok(count), "{count} numbers go up to {last}");
    Ok(())
}

async fn many_at_once_under_a_ceiling_share_all_of_it(stage: Arc<Stage>) -> Outcome {
    let name = stage.name("ceiling");
    let (all, count) = crowd(&stage, &name, 20, |_| Reserve::new(1).up_to(64)).await?;
    ensure!(count == 64, "{count} numbers of 64 were given");
    ensure!(all.iter().copied().eq(1..=64), "they are {all:?}");
    Ok(())
}

async fn no_two_names_are_one(stage: Arc<Stage>) -> Outcome {
    let (keeper, names) = (stage.keeper().await?, nasty(&stage));
    for name in &names {
        let first = keeper.reserve(name, 1, 0).await?;
        ensure!(first == 1, "{name:?} begins at {first}");
    }
    Ok(())
}

async fn numbers_records_and_locks_of_a_name_are_apart(stage: Arc<Stage>) -> Outcome {
    let (keeper, backend) = stage.opened().await?;
    let (sequencer, name) = (sequencer(&*backend)?, stage.name("same"));
    let counted = Name::new(&name)?;
    let guard = keeper.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
    let first = sequencer.reserve(&counted, &Reserve::new(5)).await?;
    ensure!(first == Reserved::From(1), "beside a lock it begins at {first:?}");
    let absent = sequencer.read(&counted).await?;
    ensure!(absent.is_none(), "a lock and a sequence made a record: {absent:?}");
    ensure!(sequencer.write(&counted, "7", None).await?, "a record was there");
    ensure!(guard.is_held(), "the lock was lost: {:?}", guard.lost_reason());
    if keeper.capability().inspects {
        let listed = keeper.list(stage.prefix()).await?;
        let names: Vec<_> = listed.iter().map(|view| view.name.as_str()).collect();
        ensure!(names == [name.as_str()], "among the locks are {names:?}");
    }
    guard.release().await?;
    listed_no_more(&keeper, &stage).await?;
    let next = sequencer.reserve(&counted, &Reserve::new(1)).await?;
    ensure!(next == Reserved::From(6), "with a record beside it, it went on with {next:?}");
    ensure!(sequencer.write(&counted, "8", Some("7")).await?, "the record says something else");
    let again = keeper.lock(&name).ttl(LONG).try_acquire().await?;
    let Some(again) = again else { unknown!("the lock was not free again") };
    again.release().await?;
    let says = sequencer.read(&counted).await?;
    ensure!(says.as_deref() == Some("8"), "behind a lock the record says {says:?}");
    Ok(())
}

async fn listed_no_more(keeper: &Keeper, stage: &Stage) -> Outcome {
    if keeper.capability().inspects {
        let listed = keeper.list(stage.prefix()).await?;
        ensure!(listed.is_empty(), "what is no lock is listed as one: {listed:?}");
    }
    Ok(())
}

async fn the_clock_does_not_go_back(stage: Arc<Stage>) -> Outcome {
    let (_keeper, backend) = stage.opened().await?;
    let sequencer = sequencer(&*backend)?;
    let mut last = SystemTime::UNIX_EPOCH;
    for _ in 0..5 {
        let Some(now) = sequencer.time().await? else { return Ok(()) };
        ensure!(now >= last, "{now:?} came after {last:?}");
        last = now;
    }
    let ours = SystemTime::now();
    let apart = ours.duration_since(last).unwrap_or_else(|error| error.duration());
    ensure!(apart < Duration::from_secs(24 * 3600), "the store says {last:?}, and we {ours:?}");
    Ok(())
}

async fn auto_increments_ascend_and_are_unique(stage: Arc<Stage>) -> Outcome {
    let mut tasks = JoinSet::new();
    let mut keepers = Vec::new();
    for _ in 0..2 {
        let (keeper, backend) = stage.opened().await?;
        keepers.push(keeper);
        for _ in 0..4 {
            let backend = backend.clone();
            tasks.spawn(async move {
                let sequencer = sequencer(&*backend)?;
                let (mut own, mut last) = (Vec::new(), 0);
                for count in [1, 4, 30] {
                    let taken = sequencer.auto_increment(count).await?;
                    let has = backend.capability().auto_increment;
                    ensure!(taken.is_some() == has, "it says {has} of its column, and gives {taken:?}");
                    let Some(taken) = taken else { break };
                    ensure!(taken.len() == count as usize, "{count} are {taken:?}");
                    let grows = taken.is_sorted() && taken[0] > last;
                    ensure!(grows, "after {last} came {taken:?}");
                    last = taken[taken.len() - 1];
                    own.extend(taken);
                }
                Outcome::Ok(own)
            });
        }
    }
    let mut all = BTreeSet::new();
    while let Some(own) = tasks.join_next().await {
        for number in own?? {
            ensure!(all.insert(number), "{number} was given twice");
        }
    }
    Ok(())
}
