use super::*;

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|&id| id.to_owned()).collect()
}

fn next(tenure: &Tenure) -> Option<Step> {
    tenure.pass_on(|_| Some(())).map(|(step, ())| step)
}

#[test]
fn heirs_come_in_order_and_those_who_left_are_passed_over() {
    let tenure = Tenure::new("a", ids(&["b", "c", "d"]));
    let (step, ()) = tenure.pass_on(|id| (id != "b").then_some(())).unwrap();
    assert_eq!((step.heir.as_str(), step.before), ("c", ids(&["a"])));
    assert_eq!(next(&tenure).unwrap().heir, "d");
    assert!(next(&tenure).is_none());
}

#[test]
fn whoever_may_be_on_record_is_named_until_the_store_has_said() {
    let tenure = Tenure::new("a", ids(&["b", "c", "d"]));
    assert!(tenure.before("a").is_empty());
    next(&tenure);
    next(&tenure);
    assert_eq!(tenure.before("c"), ids(&["a", "b"]));
    assert_eq!(tenure.before("b"), ids(&["a"]));
    tenure.confirmed("b", Vec::new());
    assert_eq!(tenure.before("c"), ids(&["b"]), "b is on record now");
    tenure.confirmed("c", Vec::new());
    assert!(tenure.before("c").is_empty());
    tenure.confirmed("b", ids(&["x"]));
    assert_eq!(next(&tenure).unwrap().before, ids(&["c"]), "what was said of b is old");
    assert!(next(&tenure).is_none(), "and so is who was behind it");
}

#[test]
fn no_more_go_unseen_than_there_are_tokens_for() {
    let heirs: Vec<_> = (0..2 * UNSEEN).map(|number| number.to_string()).collect();
    let tenure = Tenure::new("first", heirs);
    let mut last = None;
    for _ in 0..UNSEEN {
        last = next(&tenure);
    }
    assert_eq!(last.unwrap().before.len(), UNSEEN);
    assert!(next(&tenure).is_none());
    tenure.confirmed("3", Vec::new());
    assert_eq!(next(&tenure).unwrap().before[0], "3");
}

#[test]
fn the_store_is_asked_for_more_heirs_once() {
    let tenure = Tenure::new("a", ids(&["b", "c", "d"]));
    let step = next(&tenure).unwrap();
    assert!(step.asks_for_heirs);
    assert!(!next(&tenure).unwrap().asks_for_heirs);
    tenure.answered(&step);
    tenure.confirmed("b", ids(&["c", "d", "e"]));
    assert!(next(&tenure).unwrap().asks_for_heirs, "d, and not c, who had it");
    assert_eq!(next(&tenure).unwrap().heir, "e");
    assert!(next(&tenure).is_none());
}

#[test]
fn a_late_answer_ends_nothing() {
    let tenure = Tenure::new("a", ids(&["b", "c", "d"]));
    next(&tenure);
    next(&tenure);
    assert!(!tenure.is_over_with("b") && !tenure.is_gone());
    assert!(tenure.is_over_with("c") && tenure.is_gone());
    assert!(next(&tenure).is_none(), "what is gone is not passed on");
}

#[test]
fn an_heir_has_no_more_than_the_one_before_had() {
    let second = Duration::from_secs(1);
    let sent = Moment::now();
    let long = Vouched { sent, valid_for: 30 * second }.passed_on(2 * second);
    assert!(long.sent >= sent && long.valid_for == 2 * second);
    let short = Vouched { sent, valid_for: 2 * second }.passed_on(2 * second);
    assert_eq!((short.sent, short.valid_for), (sent, 2 * second));
    let shorter = Vouched { sent, valid_for: 2 * second }.passed_on(second / 10);
    assert_eq!(shorter.valid_for, second / 10);
}
