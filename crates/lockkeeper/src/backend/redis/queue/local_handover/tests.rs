//! The chain alone, without Redis: which claim may be handed the name, and what Redis may have on
//! record meanwhile. Against a server it is tested in the lab.

use super::*;
use crate::backend::redis::queue::own_claims::OwnClaims;

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|&id| id.to_owned()).collect()
}

/// A chain whose holder was granted the name just now.
fn chain_of(holder: &str, successors: Vec<String>) -> Chain {
    Chain::new(holder, successors, Arc::new(Heartbeat::new(Duration::from_secs(1))), now())
}

fn now() -> Contact {
    Contact { sent: Moment::now(), breaks: 0 }
}

/// One step, to whichever successor is first.
fn next(chain: &Chain) -> Option<Step> {
    chain.hand_over(1, |_| Next::Ready(())).map(|(step, ())| step)
}

/// The order is that of the queue, as Redis told it.
#[test]
fn successors_come_in_order_and_those_that_left_are_passed_over() {
    let chain = chain_of("a", ids(&["b", "c", "d"]));
    let b_left = |id: &str| if id == "b" { Next::Left } else { Next::Ready(()) };
    let (step, ()) = chain.hand_over(1, b_left).unwrap();
    assert_eq!((step.successor.as_str(), step.predecessors), ("c", ids(&["a"])));
    assert_eq!(next(&chain).unwrap().successor, "d");
    assert!(next(&chain).is_none());
}

/// Redis may have any of them on record until it answers: a request that names too few would find
/// nothing, and take the claim for lost.
#[test]
fn predecessors_are_named_until_the_store_has_answered() {
    let chain = chain_of("a", ids(&["b", "c", "d"]));
    assert!(chain.predecessors("a").is_empty());
    next(&chain);
    next(&chain);
    assert_eq!(chain.predecessors("c"), ids(&["a", "b"]));
    assert_eq!(chain.predecessors("b"), ids(&["a"]));
    chain.confirmed("b", Vec::new(), now());
    assert_eq!(chain.predecessors("c"), ids(&["b"]), "b is on record now");
    chain.confirmed("c", Vec::new(), now());
    assert!(chain.predecessors("c").is_empty());
    chain.confirmed("b", ids(&["x"]), now());
    assert_eq!(next(&chain).unwrap().predecessors, ids(&["c"]), "what was said of b is old");
    assert!(next(&chain).is_none(), "and so is who was behind it");
}

/// Each has a token one above the last; Redis leaves room for a limited number of them.
#[test]
fn no_more_go_unseen_than_there_are_tokens_for() {
    let successors: Vec<_> = (0..2 * UNSEEN).map(|number| number.to_string()).collect();
    let chain = chain_of("first", successors);
    let mut last = None;
    for _ in 0..UNSEEN {
        last = next(&chain);
    }
    assert_eq!(last.unwrap().predecessors.len(), UNSEEN);
    assert!(next(&chain).is_none());
    chain.confirmed("3", Vec::new(), now());
    assert_eq!(next(&chain).unwrap().predecessors[0], "3");
}

/// One request is enough, however many steps are under way.
#[test]
fn the_store_is_asked_for_more_successors_once() {
    let chain = chain_of("a", ids(&["b", "c", "d"]));
    let step = next(&chain).unwrap();
    assert!(step.asks_for_successors);
    assert!(!next(&chain).unwrap().asks_for_successors);
    chain.answered(&step);
    chain.confirmed("b", ids(&["c", "d", "e"]), now());
    assert!(next(&chain).unwrap().asks_for_successors, "d, and not c, who had it");
    assert_eq!(next(&chain).unwrap().successor, "e");
    assert!(next(&chain).is_none());
}

/// An answer about an earlier step ends the chain; only one about the holder is its loss.
#[test]
fn a_name_found_gone_ends_the_chain_and_the_holder_has_lost_it() {
    let chain = chain_of("a", ids(&["b", "c", "d"]));
    next(&chain);
    next(&chain);
    assert!(!chain.is_lost_by("b", &LossReason::Gone), "c has not been heard of yet");
    assert!(next(&chain).is_none(), "but it is not passed on");
    assert_eq!(chain.loss_of("c"), None);
    assert!(chain.is_lost_by("c", &LossReason::Gone));
    assert_eq!((chain.loss_of("c"), chain.loss_of("b")), (Some(LossReason::Gone), None));
}

/// Answers to repeated requests can come in any order.
#[test]
fn a_late_answer_ends_nothing() {
    let chain = chain_of("a", ids(&["b", "c", "d"]));
    next(&chain);
    next(&chain);
    chain.confirmed("c", Vec::new(), now());
    assert!(!chain.is_lost_by("b", &LossReason::Gone));
    assert_eq!(next(&chain).unwrap().successor, "d");
}

/// A successor that is gone from the list may have been granted the name by Redis: then the holder has
/// lost it, and nothing is its to hand over.
#[test]
fn what_the_store_has_granted_to_a_successor_is_not_handed_over() {
    let chain = chain_of("a", ids(&["b", "c"]));
    chain.heartbeat.granted(7);
    let b_left = |id: &str| if id == "b" { Next::Left } else { Next::Ready(()) };
    assert!(chain.hand_over(6, b_left).is_none(), "b had it after a");
    let chain = chain_of("a", ids(&["b", "c"]));
    chain.heartbeat.granted(7);
    assert!(chain.hand_over(7, b_left).is_some(), "that was a");
}

/// Else it would believe to hold a name that Redis lets go with the predecessor.
#[test]
fn a_successor_has_no_more_than_its_predecessor_had() {
    let second = Duration::from_secs(1);
    let sent = Moment::now();
    let long = Validity { sent, valid_for: 30 * second }.for_successor(2 * second);
    assert!(long.sent >= sent && long.valid_for == 2 * second);
    let short = Validity { sent, valid_for: 2 * second }.for_successor(2 * second);
    assert_eq!((short.sent, short.valid_for), (sent, 2 * second));
    let shorter = Validity { sent, valid_for: 2 * second }.for_successor(second / 10);
    assert_eq!(shorter.valid_for, second / 10);
    let brief = Validity { sent, valid_for: second / 5 };
    assert!(brief.is_enough_for(second / 5) && !brief.is_enough_for(2 * second));
}

/// To go on to the next would be to barge.
#[test]
fn a_claim_that_must_ask_the_store_is_not_passed_over() {
    let chain = chain_of("a", ids(&["b", "c"]));
    let b_asks = |id: &str| if id == "b" { Next::Unfit } else { Next::Ready(()) };
    assert!(chain.hand_over(1, b_asks).is_none());
    assert_eq!(next(&chain).unwrap().successor, "b", "the turn is still its own");
}

/// A renewal is due soon, and what it finds is not known yet.
#[test]
fn a_validity_of_long_ago_is_not_handed_over() {
    let sent = Moment::now();
    std::thread::sleep(Duration::from_millis(30));
    assert!(Validity { sent, valid_for: Duration::from_secs(60) }.is_fresh());
    let renewed_soon = Validity { sent, valid_for: Duration::from_millis(100) };
    assert!(!renewed_soon.is_fresh());
}

/// Else this keeper would take them for strays and remove them, with the name.
#[test]
fn predecessors_that_may_be_on_record_stay_this_keepers() {
    let claims = Arc::new(OwnClaims::default());
    let chain = chain_of("a", ids(&["b", "c"]));
    for id in ["a", "b"] {
        next(&chain);
        chain.keep_owned(id, claims.enter(id));
    }
    assert!(claims.has("a") && claims.has("b"));
    chain.confirmed("b", Vec::new(), now());
    assert!(!claims.has("a") && claims.has("b"), "b is on record now");
    chain.confirmed("c", Vec::new(), now());
    assert!(!claims.has("b"));
}

/// After a failover the old primary does not answer any more.
#[test]
fn an_answer_of_long_ago_does_not_count() {
    let chain = chain_of("a", ids(&["b"]));
    assert!(chain.recent_contact().is_some());
    std::thread::sleep(LATELY);
    assert!(chain.recent_contact().is_none());
    chain.contact(now());
    assert!(chain.recent_contact().is_some());
}
