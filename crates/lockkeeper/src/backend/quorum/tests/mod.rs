//! The quorum on a paused clock, over nodes that can be broken in every way.

mod handover;
mod node;
mod rules;

use super::{Quorum, QuorumOptions};
use crate::backend::memory::Memory;
use crate::backend::{Backend, Moment};
use crate::{ErrorKind, Guard, Keeper, LossReason};
use node::TestNode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(9);
const TIMEOUT: Duration = Duration::from_millis(50);

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn nodes(count: usize) -> Vec<TestNode> {
    (0..count).map(TestNode::new).collect()
}

fn over(nodes: &[TestNode], options: QuorumOptions) -> Keeper {
    let backends = nodes.iter().map(|node| Arc::new(node.clone()) as Arc<dyn Backend>);
    Keeper::new(Arc::new(Quorum::with_options(backends.collect(), options).unwrap())).unwrap()
}

fn keeper(nodes: &[TestNode]) -> Keeper {
    over(nodes, QuorumOptions::default())
}

async fn held(keeper: &Keeper) -> Guard {
    keeper.lock("a").ttl(TTL).try_acquire().await.unwrap().expect("a free lock")
}

/// How many nodes have the lock.
fn taken(nodes: &[TestNode]) -> usize {
    nodes.iter().filter(|node| node.holder("a").is_some()).count()
}

#[tokio::test(start_paused = true)]
async fn a_majority_decides_and_a_release_leaves_nothing() {
    for count in 1..=5 {
        let nodes = nodes(count);
        let (one, two) = (keeper(&nodes), keeper(&nodes));
        let guard = held(&one).await;
        assert!(two.lock("a").try_acquire().await.unwrap().is_none());
        assert_eq!(taken(&nodes), count);
        guard.release().await.unwrap();
        assert_eq!(taken(&nodes), 0);
        held(&two).await.release().await.unwrap();
        // Without a majority nobody gets it; four of four need three.
        let down = count - count / 2;
        nodes[..down].iter().for_each(|node| node.fails.store(true, Ordering::SeqCst));
        let error = one.lock("a").try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("node 0: it is down"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_minority_that_hangs_or_is_down_costs_no_time() {
    let nodes = nodes(5);
    let keeper = keeper(&nodes);
    nodes[1].hangs.send_replace(true);
    nodes[3].fails.store(true, Ordering::SeqCst);
    let begin = Moment::now();
    for _ in 0..100 {
        let guard = held(&keeper).await;
        guard.release().await.unwrap();
    }
    assert_eq!(Moment::now().since(begin), Duration::ZERO);
    let asked = nodes[1].asked.load(Ordering::SeqCst);
    assert!(asked < 5 + 200, "a node that hangs was asked {asked} times");
    tokio::time::sleep(TIMEOUT * 2).await;
    let before = nodes[1].asked.load(Ordering::SeqCst);
    for _ in 0..1000 {
        held(&keeper).await.release().await.unwrap();
    }
    let asked = nodes[1].asked.load(Ordering::SeqCst) - before;
    assert!(asked <= 2, "a node that is known to hang was asked {asked} times more");
    // What it took when it was asked is undone when it is back.
    nodes[1].hangs.send_replace(false);
    assert!(keeper.close(secs(60)).await);
    assert_eq!(taken(&nodes), 0);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_takes_in_a_node_that_was_away() {
    let nodes = nodes(5);
    let keeper = keeper(&nodes);
    nodes[4].fails.store(true, Ordering::SeqCst);
    let guard = held(&keeper).await;
    assert_eq!(taken(&nodes), 4);
    nodes[4].fails.store(false, Ordering::SeqCst);
    tokio::time::sleep(TTL).await;
    assert_eq!(taken(&nodes), 5);
    // So that two others may go.
    nodes[0].fails.store(true, Ordering::SeqCst);
    nodes[1].fails.store(true, Ordering::SeqCst);
    tokio::time::sleep(TTL * 3).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_restarted_node_is_retaken_and_votes_when_it_is_old_enough() {
    let nodes = nodes(3);
    let (one, two) = (keeper(&nodes), keeper(&nodes));
    let guard = held(&one).await;
    nodes[1].fails.store(true, Ordering::SeqCst);
    tokio::time::sleep(TTL).await;
    // Two of three have it. One of those forgets it, and the third comes back: if both voted for
    // another, there would be two holders.
    nodes[2].restart_empty();
    nodes[1].fails.store(false, Ordering::SeqCst);
    nodes[1].restart_empty();
    let error = two.lock("a").ttl(TTL).try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("min_uptime"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    drop(guard);
    assert!(one.close(secs(60)).await);
    tokio::time::sleep(secs(31)).await;
    held(&two).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn restarts_one_after_another_do_not_erode_the_quorum() {
    let nodes = nodes(5);
    let (one, two) = (keeper(&nodes), keeper(&nodes));
    let guard = held(&one).await;
    for round in 0..3 {
        for node in &nodes {
            node.restart_empty();
            tokio::time::sleep(TTL).await;
            assert_eq!(taken(&nodes), 5, "not retaken in round {round}");
            tokio::time::sleep(secs(30)).await;
            assert!(guard.is_held(), "{:?}", guard.lost_reason());
            assert!(two.lock("a").ttl(TTL).try_acquire().await.unwrap().is_none());
        }
    }
    guard.release().await.unwrap();
    assert_eq!(taken(&nodes), 0);
}

#[tokio::test(start_paused = true)]
async fn a_majority_that_restarts_at_once_takes_the_lock_with_it() {
    let nodes = nodes(5);
    let keeper = keeper(&nodes);
    let guard = held(&keeper).await;
    nodes[..3].iter().for_each(TestNode::restart_empty);
    guard.lost().await;
    let reason = guard.lost_reason().unwrap();
    assert!(matches!(reason, LossReason::NoMajority { .. }), "{reason:?}");
    assert!(reason.to_string().contains("node 1"), "{reason}");
    // Nodes that remember vote at once, and so does every node if that is asked for.
    drop(guard);
    assert!(keeper.close(secs(60)).await);
    let remember = |is| {
        nodes[..3].iter().for_each(|node| node.remembers.store(is, Ordering::SeqCst));
    };
    remember(true);
    nodes[..3].iter().for_each(TestNode::restart_empty);
    let error = keeper.lock("a").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("min_uptime"), "they remember since they forgot: {error}");
    tokio::time::sleep(secs(31)).await;
    held(&keeper).await.release().await.unwrap();
    nodes[..3].iter().for_each(TestNode::restart_empty);
    held(&keeper).await.release().await.unwrap();
    remember(false);
    nodes[..3].iter().for_each(TestNode::restart_empty);
    let careless = QuorumOptions { min_uptime: Some(Duration::ZERO), ..QuorumOptions::default() };
    held(&over(&nodes, careless)).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_is_noticed_and_costs_the_vote() {
    let nodes = nodes(5);
    let keeper = keeper(&nodes);
    let guard = held(&keeper).await;
    // Two are a minority, ahead by less than the key would have lasted.
    nodes[..2].iter().for_each(|node| node.jump(secs(2)));
    tokio::time::sleep(TTL * 2).await;
    assert!(guard.is_held(), "{:?}", guard.lost_reason());
    nodes[..3].iter().for_each(|node| node.jump(secs(2)));
    tokio::time::timeout(TTL * 2, guard.lost()).await.expect("it was not noticed");
    let reason = guard.lost_reason().unwrap().to_string();
    assert!(reason.contains("clock jumped"), "{reason}");
    guard.release().await.ok();
    assert!(keeper.close(secs(60)).await);
    assert_eq!(taken(&nodes), 0);
}

#[tokio::test(start_paused = true)]
async fn tokens_grow_whichever_nodes_vote_and_whatever_they_forget() {
    let nodes = nodes(5);
    let (one, two) = (keeper(&nodes), keeper(&nodes));
    nodes[4].jump(secs(3000));
    let mut last = None;
    for round in 0_usize..60 {
        // Another two are away each time, and now and then one forgets its floor.
        let away = [round % 5, (round * 2 + 1) % 5];
        for (number, node) in nodes.iter().enumerate() {
            node.fails.store(away.contains(&number), Ordering::SeqCst);
        }
        if round % 7 == 3 {
            nodes[round % 5].restart_empty();
            tokio::time::sleep(secs(40)).await;
        }
        let keeper = if round % 3 == 0 { &one } else { &two };
        let guard = keeper.lock("a").ttl(TTL).acquire_within(secs(60)).await.unwrap();
        assert!(guard.token() > last, "after {last:?} came {:?}", guard.token());
        last = guard.token();
        let remember = nodes.iter().filter(|node| Some(node.floor()) >= last.map(|it| it.get()));
        assert!(remember.count() >= 3, "too few remember {last:?}");
        guard.release().await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_tokens_none_is_made_up() {
    let nodes = nodes(3);
    let plain = QuorumOptions { token: false, ..QuorumOptions::default() };
    let keeper = over(&nodes, plain);
    assert!(!keeper.capability().fencing);
    assert_eq!(held(&keeper).await.token(), None);
    assert!(nodes.iter().all(|node| node.floor() == 0));
}

#[tokio::test(start_paused = true)]
async fn waiters_of_one_keeper_take_turns_and_ask_once_for_all() {
    let nodes = nodes(5);
    let (one, two) = (keeper(&nodes), Arc::new(keeper(&nodes)));
    let guard = held(&one).await;
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..50 {
        let (keeper, order) = (two.clone(), order.clone());
        waiting.push(tokio::spawn(async move {
            let guard = keeper.lock("a").ttl(TTL).acquire().await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let before = nodes[0].asked.load(Ordering::SeqCst);
    tokio::time::sleep(secs(2)).await;
    let asked = nodes[0].asked.load(Ordering::SeqCst) - before;
    assert!((10..80).contains(&asked), "fifty waiters asked {asked} times in two seconds");
    guard.release().await.unwrap();
    for one in waiting {
        one.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..50).collect::<Vec<_>>());
    assert!(two.close(secs(9)).await);
    assert_eq!(taken(&nodes), 0);
}

#[tokio::test]
async fn any_backend_can_be_a_node() {
    let stores: Vec<Arc<dyn Backend>> =
        (0..3).map(|_| Arc::new(Memory::new()) as Arc<dyn Backend>).collect();
    let one = Keeper::new(Arc::new(Quorum::new(stores.clone()).unwrap())).unwrap();
    let two = Keeper::new(Arc::new(Quorum::new(stores.clone()).unwrap())).unwrap();
    let mut last = None;
    for keeper in [&one, &two, &one] {
        let guard = held(keeper).await;
        assert!(guard.token() > last, "after {last:?} came {:?}", guard.token());
        last = guard.token();
        // The owner may not enter again at the nodes what it has here.
        let again = two.lock("a").owner(guard.owner()).try_acquire().await.unwrap();
        assert!(again.is_none() || std::ptr::eq(keeper, &two));
        guard.release().await.unwrap();
    }
    let twice = Quorum::new(vec![stores[0].clone(), stores[1].clone(), stores[0].clone()]);
    assert_eq!(twice.unwrap_err().kind(), ErrorKind::Config);
    assert_eq!(Quorum::new(Vec::new()).unwrap_err().kind(), ErrorKind::Config);
}

/// Who is told by the nodes that the claim is gone need not wait for a renewal.
#[tokio::test]
async fn a_majority_that_tells_of_a_loss_is_heard() {
    let stores: Vec<Arc<dyn Backend>> =
        (0..3).map(|_| Arc::new(Memory::new()) as Arc<dyn Backend>).collect();
    let keeper = Keeper::new(Arc::new(Quorum::new(stores.clone()).unwrap())).unwrap();
    let guard = keeper.lock("a").ttl(secs(600)).acquire().await.unwrap();
    for (broken, store) in stores.iter().enumerate().take(2) {
        assert!(guard.is_held(), "{broken} of three are enough to lose it");
        let inspector = store.inspector().unwrap();
        let token = inspector.show(guard.name()).await.unwrap().holders[0].token.unwrap();
        inspector.break_hold(guard.name(), token, "enough").await.unwrap();
    }
    guard.lost().await;
    let broken = LossReason::Broken { reason: "enough".into() };
    assert_eq!(guard.lost_reason(), Some(broken));
}

/// A vote must come soon, but a node that is a little late is no reason to give up: a keeper that
/// does not wait gets an answer all the same.
#[tokio::test(start_paused = true)]
async fn nodes_that_are_slow_at_first_are_asked_again() {
    let nodes = nodes(5);
    let keeper = keeper(&nodes);
    nodes[..3].iter().for_each(|node| _ = node.hangs.send_replace(true));
    let slow = nodes.clone();
    tokio::spawn(async move {
        tokio::time::sleep(TIMEOUT * 3).await;
        slow.iter().for_each(|node| _ = node.hangs.send_replace(false));
    });
    let begin = Moment::now();
    let guard = held(&keeper).await;
    assert!(Moment::now().since(begin) >= TIMEOUT * 3);
    assert!(guard.remaining() > TTL - TIMEOUT * 4, "it counts from the votes that made it");
    guard.release().await.unwrap();
    nodes[..3].iter().for_each(|node| _ = node.hangs.send_replace(true));
    let error = keeper.lock("a").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("node 2: it does"), "{error}");
    nodes[..3].iter().for_each(|node| _ = node.hangs.send_replace(false));
    assert!(keeper.close(secs(60)).await);
    assert_eq!(taken(&nodes), 0);
}

#[tokio::test(start_paused = true)]
async fn one_who_waits_is_told_of_a_release() {
    let nodes = nodes(5);
    let (one, two) = (keeper(&nodes), keeper(&nodes));
    // The first node cannot be heard: it is the second that is listened to.
    nodes[0].fails.store(true, Ordering::SeqCst);
    for _ in 0..20 {
        let guard = held(&one).await;
        let waits = two.lock("a").ttl(TTL);
        let next = tokio::spawn(async move { waits.acquire().await.unwrap() });
        // By now it asks every 100 ms or so.
        tokio::time::sleep(secs(2)).await;
        let begin = Moment::now();
        guard.release().await.unwrap();
        let next = next.await.unwrap();
        assert!(Moment::now().since(begin) < Duration::from_millis(2), "it was not told");
        next.release().await.unwrap();
    }
}

/// All who wait are told at once: one of them gets it, and the others are not in its way.
#[tokio::test(start_paused = true)]
async fn those_who_are_told_of_a_release_ask_that_node_first() {
    let nodes = nodes(5);
    let guard = held(&keeper(&nodes)).await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let keeper = keeper(&nodes);
        waiting.spawn(async move {
            let guard = keeper.lock("a").ttl(TTL).acquire().await.unwrap();
            (keeper, guard)
        });
    }
    // By now they ask every 100 ms or so.
    tokio::time::sleep(secs(2)).await;
    let asked =
        || -> Vec<usize> { nodes.iter().map(|node| node.asked.load(Ordering::SeqCst)).collect() };
    let before = asked();
    let begin = Moment::now();
    guard.release().await.unwrap();
    let first = waiting.join_next().await.unwrap().unwrap();
    assert!(Moment::now().since(begin) < Duration::from_millis(5), "none was told");
    let since: Vec<_> = asked().iter().zip(&before).map(|(now, before)| now - before).collect();
    assert!(since[0] > 8, "too few were told to tell: {since:?}");
    assert!(since[1..].iter().all(|asked| *asked < 6), "votes were taken away: {since:?}");
    drop(first);
}
