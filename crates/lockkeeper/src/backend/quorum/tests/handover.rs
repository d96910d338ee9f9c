//! Local hand-over: what a successor gets, when there is none, and that nothing is left.

use super::node::TestNode;
use super::{TTL, held, keeper, nodes, over, secs, taken};
use crate::backend::quorum::local_handover::{RUN, UNSEEN};
use crate::backend::quorum::{Quorum, QuorumOptions};
use crate::backend::{
    Backend, Claim, Mode, Moment, Name, Owner, Patience, Primitive, Release, Standing, Ticket,
};
use crate::{Guard, Keeper, LossReason};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Less than a name is handed over for.
const SOON: Duration = Duration::from_millis(5);
const MARGIN: Duration = Duration::from_millis(92);

/// A claim that waits by now.
async fn waiting(keeper: &Keeper) -> JoinHandle<Guard> {
    let waits = keeper.lock("a").ttl(TTL);
    let task = tokio::spawn(async move { waits.acquire().await.unwrap() });
    settle().await;
    assert!(!task.is_finished(), "it need not wait");
    task
}

/// Lets all tasks go as far as they can without time passing.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

fn passed(nodes: &[TestNode]) -> usize {
    nodes.iter().map(|node| node.passed.load(Ordering::SeqCst)).sum()
}

fn hang_at_passing(nodes: &[TestNode], hang: bool) {
    nodes.iter().for_each(|node| _ = node.hangs_at_passing.send_replace(hang));
}

fn number(guard: &Guard) -> u64 {
    guard.token().unwrap().get()
}

fn holders(nodes: &[TestNode]) -> Vec<String> {
    let mut all: Vec<_> = nodes.iter().filter_map(|node| node.holder("a")).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[tokio::test(start_paused = true)]
async fn the_next_claim_holds_before_the_nodes_are_told() {
    let nodes = nodes(5);
    let (one, two) = (keeper(&nodes), keeper(&nodes));
    let first = held(&one).await;
    let next = waiting(&one).await;
    let before = holders(&nodes);
    hang_at_passing(&nodes, true);
    let token = number(&first);
    let begin = Moment::now();
    first.release().await.unwrap();
    let next = next.await.unwrap();
    assert_eq!(Moment::now(), begin, "a node was waited for");
    assert_eq!(number(&next), token + 1);
    // Nobody else gets in meanwhile, nor afterwards.
    assert_eq!(holders(&nodes), before);
    assert!(two.lock("a").try_acquire().await.unwrap().is_none());
    hang_at_passing(&nodes, false);
    tokio::time::sleep(SOON).await;
    let after = holders(&nodes);
    assert!(after.len() == 1 && after != before, "{after:?} after {before:?}");
    assert!(nodes.iter().all(|node| node.floor() == token + 1));
    assert!(two.lock("a").try_acquire().await.unwrap().is_none());
    tokio::time::sleep(TTL * 2).await;
    assert!(next.is_held(), "{:?}", next.lost_reason());
    next.release().await.unwrap();
    assert_eq!(taken(&nodes), 0);
}

/// The nodes were told of nobody since: what they vouch for counts from the request of before.
#[tokio::test(start_paused = true)]
async fn a_successor_is_valid_for_no_longer_than_its_predecessor() {
    let nodes = nodes(5);
    let keeper = keeper(&nodes);
    let begin = Moment::now();
    let first = held(&keeper).await;
    let next = waiting(&keeper).await;
    tokio::time::sleep(SOON).await;
    hang_at_passing(&nodes, true);
    first.release().await.unwrap();
    let next = next.await.unwrap();
    assert!(Moment::now().since(begin) >= SOON, "unknown: no time has passed");
    assert_eq!(next.remaining(), (begin + TTL).remaining() - MARGIN);
    // Too few say that they keep it: it is over in time.
    let lost_in_time = begin + (TTL - MARGIN);
    next.lost().await;
    assert!(Moment::now() <= lost_in_time + Duration::from_millis(1));
    hang_at_passing(&nodes, false);
    drop(next);
    assert!(keeper.close(secs(60)).await);
    assert_eq!(taken(&nodes), 0);
}

/// On a clock that stands still, so that tokens do not grow by it.
#[tokio::test(start_paused = true)]
async fn tokens_grow_also_past_claims_that_the_nodes_never_heard_of() {
    let nodes = nodes(5);
    let (one, two) = (keeper(&nodes), keeper(&nodes));
    // Both know the time.
    held(&two).await.release().await.unwrap();
    held(&one).await.release().await.unwrap();
    hang_at_passing(&nodes, true);
    let mut guard = held(&one).await;
    let (first, begin) = (number(&guard), Moment::now());
    let mut handed = 0;
    loop {
        let next = waiting(&one).await;
        if handed == UNSEEN {
            // The next would have no token: it is given back, which the nodes must be told first.
            drop(guard);
            settle().await;
            assert!(!next.is_finished(), "more than {UNSEEN} followed one another");
            next.abort();
            break;
        }
        guard.release().await.unwrap();
        guard = next.await.unwrap();
        handed += 1;
        assert_eq!(number(&guard), first + u64::from(handed));
    }
    // An operator breaks it, and another has it at once.
    nodes.iter().for_each(|node| node.break_lock("a", "enough"));
    let other = held(&two).await;
    assert_eq!(Moment::now(), begin, "unknown: the clock went on");
    assert!(number(&other) > first + u64::from(UNSEEN), "{} after {first}", number(&other));
    hang_at_passing(&nodes, false);
    other.release().await.unwrap();
    assert!(one.close(secs(60)).await);
    assert_eq!(taken(&nodes), 0);
}

/// What waits for something else, at nodes that lack the operation, and a name that must stay taken.
#[tokio::test(start_paused = true)]
async fn where_it_would_not_do_the_name_is_given_back() {
    let nodes = nodes(5);
    let one = keeper(&nodes);
    // Another ttl.
    let guard = one.lock("a").ttl(TTL * 2).acquire().await.unwrap();
    let next = waiting(&one).await;
    guard.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    assert_eq!(passed(&nodes), 0, "a claim for another ttl");
    // Held for long.
    let guard = held(&one).await;
    let next = waiting(&one).await;
    tokio::time::sleep(RUN).await;
    guard.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    assert_eq!(passed(&nodes), 0, "others wait for that long");
    // One node that cannot.
    nodes[2].cannot_pass.store(true, Ordering::SeqCst);
    let other = keeper(&nodes);
    let guard = held(&other).await;
    let next = waiting(&other).await;
    guard.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    assert_eq!(passed(&nodes), 0, "a node that cannot");
    assert_eq!(taken(&nodes), 0);
}

/// After a while the name is free for others, and this keeper waits until they have had it.
#[tokio::test(start_paused = true)]
async fn another_keeper_gets_its_turn() {
    let nodes = nodes(5);
    let (one, two) = (keeper(&nodes), keeper(&nodes));
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let first = held(&one).await;
    let mut tasks = Vec::new();
    for (keeper, who) in std::iter::once((&two, 2)).chain(std::iter::repeat_n((&one, 1), 20)) {
        let (waits, order) = (keeper.lock("a").ttl(TTL), order.clone());
        tasks.push(tokio::spawn(async move {
            let guard = waits.acquire().await.unwrap();
            tokio::time::sleep(SOON).await;
            order.lock().unwrap().push(who);
            guard.release().await.unwrap();
        }));
        settle().await;
    }
    first.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let order = order.lock().unwrap().clone();
    let before = order.iter().position(|who| *who == 2).unwrap();
    let most = usize::try_from(RUN.as_millis() / SOON.as_millis()).unwrap() + 1;
    assert!((2..=most).contains(&before), "{before} before it: {order:?}");
    assert_eq!(taken(&nodes), 0);
}

#[tokio::test(start_paused = true)]
async fn once_too_few_answer_nothing_is_handed_over() {
    let nodes = nodes(5);
    let keeper = keeper(&nodes);
    let first = held(&keeper).await;
    let (second, third) = (waiting(&keeper).await, waiting(&keeper).await);
    nodes[..3].iter().for_each(|node| node.fails.store(true, Ordering::SeqCst));
    first.release().await.unwrap();
    let second = second.await.unwrap();
    tokio::time::sleep(SOON).await;
    second.release().await.unwrap_err();
    tokio::time::sleep(SOON).await;
    assert!(!third.is_finished(), "handed over on the word of nodes that are away");
    nodes[..3].iter().for_each(|node| node.fails.store(false, Ordering::SeqCst));
    third.await.unwrap().release().await.unwrap();
    assert!(keeper.close(secs(60)).await);
    assert_eq!(taken(&nodes), 0);
}

/// The predecessor was broken, or forgotten by a majority, without hearing of it: the successor hears by
/// the telling, long before it would by a renewal, and nothing is handed over any more.
#[tokio::test(start_paused = true)]
async fn a_successor_is_told_when_there_was_nothing_to_pass_on() {
    let broken = |node: &TestNode| node.break_lock("a", "enough");
    for (spoil, why) in [(broken as fn(&TestNode), "enough"), (TestNode::restart_empty, "")] {
        let nodes = nodes(5);
        let keeper = keeper(&nodes);
        let first = held(&keeper).await;
        let (next, last) = (waiting(&keeper).await, waiting(&keeper).await);
        nodes[..3].iter().for_each(spoil);
        first.release().await.unwrap();
        let next = next.await.unwrap();
        tokio::time::timeout(SOON, next.lost()).await.expect("it was not told");
        let reason = next.lost_reason().unwrap();
        match why.is_empty() {
            false => assert_eq!(reason, LossReason::Broken { reason: why.into() }),
            true => assert!(matches!(reason, LossReason::NoMajority { .. }), "{reason:?}"),
        }
        let token = number(&next);
        drop(next);
        tokio::time::sleep(SOON).await;
        // The nodes that forgot grant nothing yet, and the others nothing without leaving room.
        assert_eq!(last.is_finished(), !why.is_empty(), "handed over although it was lost");
        if last.is_finished() {
            assert!(number(&last.await.unwrap()) > token + 1, "handed over although it was lost");
        } else {
            last.abort();
            drop(last.await);
        }
        assert!(keeper.close(secs(60)).await);
        assert_eq!(taken(&nodes), 0);
    }
}

/// Nodes that missed that the name passed on know it by the first claim, and give it back all the same.
#[tokio::test(start_paused = true)]
async fn a_release_reaches_nodes_that_were_not_told() {
    let nodes = nodes(5);
    let keeper = keeper(&nodes);
    let first = held(&keeper).await;
    let next = waiting(&keeper).await;
    nodes[3..].iter().for_each(|node| node.fails.store(true, Ordering::SeqCst));
    first.release().await.unwrap();
    let next = next.await.unwrap();
    tokio::time::sleep(SOON).await;
    assert_eq!(holders(&nodes).len(), 2, "unknown: all were told");
    nodes[3..].iter().for_each(|node| node.fails.store(false, Ordering::SeqCst));
    next.release().await.unwrap();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(taken(&nodes), 0);
}

/// A ticket is of the claim that has the name: that of a claim which passed it on is of no use.
#[tokio::test(start_paused = true)]
async fn a_ticket_does_not_reach_the_claim_after_its_own() {
    let nodes = nodes(5);
    let keeper = keeper(&nodes);
    let backends = nodes.iter().map(|node| Arc::new(node.clone()) as Arc<dyn Backend>);
    let elsewhere = Quorum::new(backends.collect()).unwrap();
    let lease = |id: &str| {
        let name = Name::new("a").unwrap();
        let ticket = Ticket::new(name, Mode::Exclusive, id.parse().unwrap(), TTL);
        elsewhere.lease_of(&ticket).unwrap()
    };
    let first = held(&keeper).await;
    let mut old = lease(&holders(&nodes)[0]);
    let next = waiting(&keeper).await;
    first.release().await.unwrap();
    let next = next.await.unwrap();
    tokio::time::sleep(SOON).await;
    let mut new = lease(&holders(&nodes)[0]);
    assert_eq!(new.renew().await.unwrap(), Standing::Held);
    // Also not at nodes that answer late, or are away and asked until they are back.
    let hang = |is| nodes[3..].iter().for_each(|node| _ = node.hangs.send_replace(is));
    hang(true);
    assert_eq!(old.renew().await.unwrap(), Standing::Lost(LossReason::Gone));
    hang(false);
    nodes[2].fails.store(true, Ordering::SeqCst);
    old.release(&Release::now()).await.unwrap_err();
    nodes[2].fails.store(false, Ordering::SeqCst);
    tokio::time::sleep(secs(1)).await;
    assert_eq!(taken(&nodes), 5, "the claim of another was given back");
    tokio::time::sleep(TTL).await;
    assert!(next.is_held(), "{:?}", next.lost_reason());
    next.release().await.unwrap();
    assert_eq!(taken(&nodes), 0);
}

/// Callers that leave at any moment around the hand-over leave nothing behind.
#[tokio::test(start_paused = true)]
async fn a_successor_that_leaves_gives_the_name_back() {
    let nodes = nodes(5);
    let keeper = keeper(&nodes);
    for polls in 0..12 {
        let first = held(&keeper).await;
        let next = waiting(&keeper).await;
        first.release().await.unwrap();
        for _ in 0..polls {
            tokio::task::yield_now().await;
        }
        next.abort();
        drop(next.await);
        tokio::time::sleep(SOON).await;
        assert_eq!(taken(&nodes), 0, "left behind after {polls} polls");
    }
    assert!(passed(&nodes) > 0, "unknown: nothing was handed over");
    // One whose limit passes as it is chosen.
    let first = held(&keeper).await;
    let waits = keeper.lock("a").ttl(TTL);
    let next = tokio::spawn(async move { waits.acquire_within(SOON).await });
    tokio::time::sleep(SOON).await;
    first.release().await.unwrap();
    drop(next.await);
    tokio::time::sleep(SOON).await;
    assert_eq!(taken(&nodes), 0);
}

/// Where nobody finishes what the caller began, what was handed over and not taken is given back.
#[tokio::test(start_paused = true)]
async fn what_nobody_takes_is_given_back() {
    let nodes = nodes(5);
    let backends = nodes.iter().map(|node| Arc::new(node.clone()) as Arc<dyn Backend>);
    let quorum = Arc::new(Quorum::new(backends.collect()).unwrap());
    let ids = crate::claim::ClaimIds::new().unwrap();
    let claim = || {
        let id = ids.next();
        Claim {
            id,
            name: Name::new("a").unwrap(),
            mode: Mode::Exclusive,
            primitive: Primitive::Lock,
            owner: Owner::from_id(id.to_string()),
            ttl: TTL,
            identity: "".into(),
            note: "".into(),
            by_id: false,
        }
    };
    let mut first = quorum.acquire(&claim(), &Patience::endless()).await.unwrap().unwrap();
    let (waits, next) = (quorum.clone(), claim());
    let next =
        tokio::spawn(
            async move { waits.acquire(&next, &Patience::endless()).await.unwrap().is_some() },
        );
    settle().await;
    first.lease.release(&Release::now()).await.unwrap();
    next.abort();
    assert!(next.await.unwrap_err().is_cancelled(), "unknown: it was taken");
    tokio::time::sleep(SOON).await;
    assert!(passed(&nodes) > 0, "unknown: nothing was handed over");
    assert_eq!(taken(&nodes), 0);
    // A name that must stay taken for a while is nobody's until then.
    let mut first = quorum.acquire(&claim(), &Patience::endless()).await.unwrap().unwrap();
    let (waits, next) = (quorum.clone(), claim());
    let next =
        tokio::spawn(
            async move { waits.acquire(&next, &Patience::endless()).await.unwrap().is_some() },
        );
    settle().await;
    let before = passed(&nodes);
    first.lease.release(&Release::after(secs(1))).await.unwrap();
    next.abort();
    drop(next.await);
    assert_eq!(passed(&nodes), before, "handed over although it must stay");
}

/// What the nodes said long ago is not handed over, also where they took that long to say it.
#[tokio::test(start_paused = true)]
async fn an_old_answer_is_not_handed_over() {
    let nodes = nodes(5);
    let patient = QuorumOptions { timeout: secs(5), ..QuorumOptions::default() };
    let keeper = over(&nodes, patient);
    let hang = |is| nodes.iter().for_each(|node| _ = node.hangs.send_replace(is));
    for (took, hands_over) in [(SOON, true), (secs(2), false)] {
        hang(true);
        let waits = keeper.lock("a").ttl(TTL);
        let first = tokio::spawn(async move { waits.acquire().await.unwrap() });
        tokio::time::sleep(took).await;
        hang(false);
        let first = first.await.unwrap();
        let (next, before) = (waiting(&keeper).await, passed(&nodes));
        first.release().await.unwrap();
        let next = next.await.unwrap();
        settle().await;
        assert_eq!(passed(&nodes) > before, hands_over, "after {took:?}");
        next.release().await.unwrap();
    }
    assert_eq!(taken(&nodes), 0);
}
