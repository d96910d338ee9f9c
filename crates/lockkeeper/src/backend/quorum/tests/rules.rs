//! The rules that keep a quorum sound, one test each: what is broken without it.

use super::node::TestNode;
use super::{TIMEOUT, TTL, held, keeper, nodes, over, secs, taken};
use crate::backend::memory::Memory;
use crate::backend::quorum::{Quorum, QuorumOptions};
use crate::backend::{Backend, Background, Mode, Moment, Name, Standing, Ticket};
use crate::{ErrorKind, Keeper, LossReason};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn quorum(nodes: &[TestNode]) -> Arc<Quorum> {
    let backends = nodes.iter().map(|node| Arc::new(node.clone()) as Arc<dyn Backend>);
    Arc::new(Quorum::new(backends.collect()).unwrap())
}

/// Lets nodes hang for a while.
fn hang_for(nodes: &[TestNode], span: Duration) {
    nodes.iter().for_each(|node| _ = node.hangs.send_replace(true));
    let nodes = nodes.to_vec();
    tokio::spawn(async move {
        tokio::time::sleep(span).await;
        nodes.iter().for_each(|node| _ = node.hangs.send_replace(false));
    });
}

#[tokio::test(start_paused = true)]
async fn validity_counts_from_before_the_question() {
    let nodes = nodes(5);
    let keeper = keeper(&nodes);
    let took = TIMEOUT - Duration::from_millis(10);
    hang_for(&nodes, took);
    let begin = Moment::now();
    let guard = held(&keeper).await;
    assert_eq!(Moment::now().since(begin), took, "unknown: the nodes did not take their time");
    // Less the margin for clocks that do not run equally fast, as everywhere.
    let margin = TTL / 100 + Duration::from_millis(2);
    assert_eq!(guard.remaining(), TTL - took - margin);
    guard.release().await.unwrap();
}

/// A grant that is over when it arrives is none.
#[tokio::test(start_paused = true)]
async fn votes_that_took_the_whole_ttl_grant_nothing() {
    let nodes = nodes(5);
    let patient = QuorumOptions { timeout: TTL * 2, ..QuorumOptions::default() };
    let keeper = over(&nodes, patient);
    hang_for(&nodes, TTL);
    let tried = keeper.lock("a").ttl(TTL).try_acquire().await;
    assert!(!matches!(tried, Ok(Some(_))), "{tried:?}");
    assert!(keeper.close(secs(60)).await);
    assert_eq!(taken(&nodes), 0);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_voters_know_a_larger_one_than_is_not_given() {
    let nodes = nodes(5);
    let (one, two) = (keeper(&nodes), keeper(&nodes));
    // It knows the time now, and proposes tokens by it.
    held(&one).await.release().await.unwrap();
    // The other learns another time, of a majority.
    nodes[..3].iter().for_each(|node| node.jump(secs(3000)));
    let guard = held(&two).await;
    let last = guard.token();
    guard.release().await.unwrap();
    let guard = held(&one).await;
    assert!(guard.token() > last, "after {last:?} came {:?}", guard.token());
    let remember =
        nodes.iter().filter(|node| Some(node.floor()) >= guard.token().map(|it| it.get()));
    assert!(remember.count() >= 3, "too few remember {:?}", guard.token());
    guard.release().await.unwrap();
}

/// The larger token must be written to a majority, and one that cannot be is no token.
#[tokio::test(start_paused = true)]
async fn a_token_that_too_few_can_remember_is_not_given() {
    let nodes = nodes(5);
    let (one, two) = (keeper(&nodes), keeper(&nodes));
    held(&one).await.release().await.unwrap();
    nodes[..3].iter().for_each(|node| node.jump(secs(3000)));
    held(&two).await.release().await.unwrap();
    // They vote, and lose the claim before they are told the token: all are asked once more.
    nodes[..3].iter().for_each(|node| node.forgets_a_vote.store(true, Ordering::SeqCst));
    let guard = held(&one).await;
    assert!(!nodes[0].forgets_a_vote.load(Ordering::SeqCst), "unknown: none was forgotten");
    assert_eq!(taken(&nodes), 5);
    guard.release().await.unwrap();
}

/// A majority voted, so nobody else has the name: it must not be called taken.
#[tokio::test(start_paused = true)]
async fn a_token_that_is_late_is_asked_for_again_and_at_the_limit_an_error() {
    let nodes = nodes(5);
    nodes.iter().for_each(|node| _ = node.hangs_at_tokens.send_replace(true));
    // The first token of a keeper is always written in a round of its own.
    let late = keeper(&nodes).lock("a").ttl(TTL).acquire_within(TIMEOUT / 2).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Unavailable, "{late}");
    assert!(late.to_string().contains("took its token"), "{late}");
    assert_eq!(taken(&nodes), 0, "what was voted for is left");
    // The next is proposed with the claim, by the clock that was told in vain.
    let (begin, keeper) = (Moment::now(), keeper(&nodes));
    let guard = held(&keeper).await;
    assert!(Moment::now().since(begin) >= TIMEOUT, "unknown: no token was late");
    guard.release().await.unwrap();
}

/// At the caller's limit it counts what nodes said last, and not that they say nothing just then.
#[tokio::test(start_paused = true)]
async fn nodes_that_fall_silent_before_the_limit_have_said_that_it_is_taken() {
    let nodes = nodes(5);
    let (one, two) = (keeper(&nodes), keeper(&nodes));
    let hang = |is| nodes.iter().for_each(|node| _ = node.hangs.send_replace(is));
    let guard = held(&one).await;
    let waits = two.lock("a").ttl(TTL);
    let waiting = tokio::spawn(async move { waits.acquire_within(secs(1)).await });
    tokio::time::sleep(secs(1) / 2).await;
    hang(true);
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
    // Those that never said anything have not said that either.
    let error = two.lock("a").ttl(TTL).acquire_within(secs(1) / 2).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    hang(false);
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn votes_without_a_majority_are_given_back_at_once() {
    let nodes = nodes(5);
    let other = keeper(&nodes[2..]);
    let guard = held(&other).await;
    assert!(keeper(&nodes).lock("a").ttl(TTL).try_acquire().await.unwrap().is_none());
    // Not only when their ttl is over.
    assert_eq!(taken(&nodes), 3);
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_release_reaches_a_node_that_was_down_then() {
    let nodes = nodes(5);
    let keeper = keeper(&nodes);
    let fails = |node: &TestNode, is: bool| node.fails.store(is, Ordering::SeqCst);
    let hangs = |node: &TestNode, is: bool| _ = node.hangs.send_replace(is);
    for down in [fails as fn(&TestNode, bool), hangs] {
        let guard = held(&keeper).await;
        assert_eq!(taken(&nodes), 5);
        down(&nodes[4], true);
        guard.release().await.unwrap();
        tokio::time::sleep(TTL / 9).await;
        assert_eq!(taken(&nodes), 1, "unknown: it was not away");
        down(&nodes[4], false);
        // Long before the ttl is over.
        tokio::time::sleep(TTL / 3).await;
        assert_eq!(taken(&nodes), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_ticket_keeps_a_claim_and_does_not_bring_one_back() {
    let nodes = nodes(5);
    let keeper = keeper(&nodes);
    let guard = held(&keeper).await;
    let id = nodes[0].holder("a").unwrap().parse().unwrap();
    let ticket = Ticket::new(Name::new("a").unwrap(), Mode::Exclusive, id, TTL);
    let mut lease = quorum(&nodes).lease_of(&ticket).unwrap();
    assert_eq!(lease.renew().await.unwrap(), Standing::Held);
    guard.release().await.unwrap();
    let standing = lease.renew().await.unwrap();
    assert_eq!(standing, Standing::Lost(LossReason::Gone));
    assert_eq!(taken(&nodes), 0, "a claim that was given back is back");
}

#[tokio::test(start_paused = true)]
async fn two_addresses_of_one_server_have_one_vote() {
    let mut nodes = nodes(3);
    quorum(&nodes).check().await.unwrap();
    nodes[2] = nodes[0].clone();
    let twins = quorum(&nodes);
    let error = twins.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("one and the same server"), "{error}");
    // Nobody looked; or the second address was that of another server then.
    nodes[1].fails.store(true, Ordering::SeqCst);
    let error = Keeper::new(twins).unwrap().lock("a").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("the same server as node 1"), "{error}");
}

/// A minority that hangs costs half a second when a keeper is opened; a majority is worth more.
#[tokio::test(start_paused = true)]
async fn nodes_that_are_slow_to_connect_are_waited_for_while_too_few_are_there() {
    let nodes = nodes(5);
    nodes.iter().for_each(|node| node.tells_its_life.store(true, Ordering::SeqCst));
    nodes[0].hangs.send_replace(true);
    let begin = Moment::now();
    quorum(&nodes).check().await.unwrap();
    assert_eq!(Moment::now().since(begin), TIMEOUT * 10);
    hang_for(&nodes[..3], secs(2));
    let begin = Moment::now();
    quorum(&nodes).check().await.unwrap();
    assert_eq!(Moment::now().since(begin), secs(2));
    hang_for(&nodes[..3], secs(20));
    let error = quorum(&nodes).check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("node 2: it does not answer"), "{error}");
    // One that says at once that it is away is not.
    nodes.iter().for_each(|node| node.fails.store(true, Ordering::SeqCst));
    nodes[..3].iter().for_each(|node| _ = node.hangs.send_replace(false));
    let begin = Moment::now();
    quorum(&nodes).check().await.unwrap_err();
    assert_eq!(Moment::now().since(begin), Duration::ZERO);
}

/// Nodes that cannot vote are looked at as well as they can be.
#[tokio::test(start_paused = true)]
async fn any_backends_are_looked_at() {
    let stores = (0..3).map(|_| Arc::new(Memory::new()) as Arc<dyn Backend>);
    Quorum::new(stores.collect()).unwrap().check().await.unwrap();
}

/// A claim that lasts longer than half a minute may have been forgotten for as long as that.
#[tokio::test(start_paused = true)]
async fn a_restarted_node_does_not_vote_for_the_longest_ttl_in_use() {
    let nodes = nodes(3);
    let keeper = keeper(&nodes);
    let long = secs(90);
    keeper.lock("b").ttl(long).acquire().await.unwrap().release().await.unwrap();
    nodes[..2].iter().for_each(TestNode::restart_empty);
    tokio::time::sleep(secs(60)).await;
    let error = keeper.lock("a").ttl(TTL).try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("min_uptime"), "{error}");
    tokio::time::sleep(secs(31)).await;
    held(&keeper).await.release().await.unwrap();
}

/// Stragglers are waited for in the background, whatever becomes of the caller's runtime.
#[test]
fn a_callers_runtime_may_end_before_the_slowest_have_answered() {
    let (nodes, background) = (nodes(5), Background::new());
    // Outside of any runtime, so that it is a thread of its own.
    background.handle().unwrap();
    let keeper = Keeper::over(quorum(&nodes), background, secs(9)).unwrap();
    let callers = tokio::runtime::Runtime::new().unwrap();
    nodes[..2].iter().for_each(|node| _ = node.hangs.send_replace(true));
    callers.block_on(async { held(&keeper).await.release().await.unwrap() });
    drop(callers);
    assert_eq!(taken(&nodes), 0);
    nodes[..2].iter().for_each(|node| _ = node.hangs.send_replace(false));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    assert!(runtime.block_on(keeper.close(secs(30))));
    assert_eq!(taken(&nodes), 0, "what a straggler took is left");
}
