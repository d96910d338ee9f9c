use super::*;
use crate::backend::redis::owned::Claims;

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|&id| id.to_owned()).collect()
}

fn tenure_of(holder: &str, heirs: Vec<String>) -> Tenure {
    Tenure::new(holder, heirs, Arc::new(Vigil::new(Duration::from_secs(1))), now())
}

fn now() -> Heard {
    Heard { sent: Moment::now(), breaks: 0 }
}

fn next(tenure: &Tenure) -> Option<Step> {
    tenure.pass_on(1, |_| Candidate::Ready(())).map(|(step, ())| step)
}

#[test]
fn heirs_come_in_order_and_those_who_left_are_passed_over() {
    let tenure = tenure_of("a", ids(&["b", "c", "d"]));
    let b_left = |id: &str| if id == "b" { Candidate::Left } else { Candidate::Ready(()) };
    let (step, ()) = tenure.pass_on(1, b_left).unwrap();
    assert_eq!((step.heir.as_str(), step.before), ("c", ids(&["a"])));
    assert_eq!(next(&tenure).unwrap().heir, "d");
    assert!(next(&tenure).is_none());
}

#[test]
fn whoever_may_be_on_record_is_named_until_the_store_has_said() {
    let tenure = tenure_of("a", ids(&["b", "c", "d"]));
    assert!(tenure.before("a").is_empty());
    next(&tenure);
    next(&tenure);
    assert_eq!(tenure.before("c"), ids(&["a", "b"]));
    assert_eq!(tenure.before("b"), ids(&["a"]));
    tenure.confirmed("b", Vec::new(), now());
    assert_eq!(tenure.before("c"), ids(&["b"]), "b is on record now");
    tenure.confirmed("c", Vec::new(), now());
    assert!(tenure.before("c").is_empty());
    tenure.confirmed("b", ids(&["x"]), now());
    assert_eq!(next(&tenure).unwrap().before, ids(&["c"]), "what was said of b is old");
    assert!(next(&tenure).is_none(), "and so is who was behind it");
}

#[test]
fn no_more_go_unseen_than_there_are_tokens_for() {
    let heirs: Vec<_> = (0..2 * UNSEEN).map(|number| number.to_string()).collect();
    let tenure = tenure_of("first", heirs);
    let mut last = None;
    for _ in 0..UNSEEN {
        last = next(&tenure);
    }
    assert_eq!(last.unwrap().before.len(), UNSEEN);
    assert!(next(&tenure).is_none());
    tenure.confirmed("3", Vec::new(), now());
    assert_eq!(next(&tenure).unwrap().before[0], "3");
}

#[test]
fn the_store_is_asked_for_more_heirs_once() {
    let tenure = tenure_of("a", ids(&["b", "c", "d"]));
    let step = next(&tenure).unwrap();
    assert!(step.asks_for_heirs);
    assert!(!next(&tenure).unwrap().asks_for_heirs);
    tenure.answered(&step);
    tenure.confirmed("b", ids(&["c", "d", "e"]), now());
    assert!(next(&tenure).unwrap().asks_for_heirs, "d, and not c, who had it");
    assert_eq!(next(&tenure).unwrap().heir, "e");
    assert!(next(&tenure).is_none());
}

#[test]
fn whoever_finds_it_gone_ends_it_and_the_holder_has_lost_it() {
    let tenure = tenure_of("a", ids(&["b", "c", "d"]));
    next(&tenure);
    next(&tenure);
    assert!(!tenure.is_lost_by("b", &LossReason::Gone), "c has not been heard of yet");
    assert!(next(&tenure).is_none(), "but it is not passed on");
    assert_eq!(tenure.loss_of("c"), None);
    assert!(tenure.is_lost_by("c", &LossReason::Gone));
    assert_eq!((tenure.loss_of("c"), tenure.loss_of("b")), (Some(LossReason::Gone), None));
}

#[test]
fn a_late_answer_ends_nothing() {
    let tenure = tenure_of("a", ids(&["b", "c", "d"]));
    next(&tenure);
    next(&tenure);
    tenure.confirmed("c", Vec::new(), now());
    assert!(!tenure.is_lost_by("b", &LossReason::Gone));
    assert_eq!(next(&tenure).unwrap().heir, "d");
}

#[test]
fn what_the_store_has_given_to_an_heir_is_not_passed_on() {
    let tenure = tenure_of("a", ids(&["b", "c"]));
    tenure.vigil.granted(7);
    let b_left = |id: &str| if id == "b" { Candidate::Left } else { Candidate::Ready(()) };
    assert!(tenure.pass_on(6, b_left).is_none(), "b had it after a");
    let tenure = tenure_of("a", ids(&["b", "c"]));
    tenure.vigil.granted(7);
    assert!(tenure.pass_on(7, b_left).is_some(), "that was a");
}

#[test]
fn an_heir_has_no_more_than_the_one_before_had() {
    let second = Duration::from_secs(1);
    let sent = Moment::now();
    let long = Vouched { sent, valid_for: 30 * second }.for_heir(2 * second);
    assert!(long.sent >= sent && long.valid_for == 2 * second);
    let short = Vouched { sent, valid_for: 2 * second }.for_heir(2 * second);
    assert_eq!((short.sent, short.valid_for), (sent, 2 * second));
    let shorter = Vouched { sent, valid_for: 2 * second }.for_heir(second / 10);
    assert_eq!(shorter.valid_for, second / 10);
    let brief = Vouched { sent, valid_for: second / 5 };
    assert!(brief.is_enough_for(second / 5) && !brief.is_enough_for(2 * second));
}

#[test]
fn one_who_must_ask_the_store_is_not_passed_over() {
    let tenure = tenure_of("a", ids(&["b", "c"]));
    let b_asks = |id: &str| if id == "b" { Candidate::Unfit } else { Candidate::Ready(()) };
    assert!(tenure.pass_on(1, b_asks).is_none());
    assert_eq!(next(&tenure).unwrap().heir, "b", "the turn is still its own");
}

#[test]
fn what_was_vouched_for_long_ago_is_not_passed_on() {
    let sent = Moment::now();
    std::thread::sleep(Duration::from_millis(30));
    assert!(Vouched { sent, valid_for: Duration::from_secs(60) }.is_fresh());
    let renewed_soon = Vouched { sent, valid_for: Duration::from_millis(100) };
    assert!(!renewed_soon.is_fresh());
}

#[test]
fn those_who_may_be_on_record_stay_this_keepers() {
    let claims = Arc::new(Claims::default());
    let tenure = tenure_of("a", ids(&["b", "c"]));
    for id in ["a", "b"] {
        next(&tenure);
        tenure.remembers(id, claims.enter(id));
    }
    assert!(claims.has("a") && claims.has("b"));
    tenure.confirmed("b", Vec::new(), now());
    assert!(!claims.has("a") && claims.has("b"), "b is on record now");
    tenure.confirmed("c", Vec::new(), now());
    assert!(!claims.has("b"));
}

#[test]
fn a_word_of_long_ago_is_none() {
    let tenure = tenure_of("a", ids(&["b"]));
    assert!(tenure.lately_heard().is_some());
    std::thread::sleep(LATELY);
    assert!(tenure.lately_heard().is_none());
    tenure.heard(now());
    assert!(tenure.lately_heard().is_some());
}
