use super::{Panel, escape, strip, timeline};
use crate::check::{Demands, Verdict, check};
use crate::history::{Mode, Record, What};

const MILLISECOND: u64 = 1_000_000;

fn note(records: &mut Vec<Record>, at: u64, client: &str, what: What) {
    records.push(Record { at: at * MILLISECOND, client: client.to_owned(), what });
}

/// One whole claim, in milliseconds.
fn hold(records: &mut Vec<Record>, client: &str, claim: u64, name: &str, times: [u64; 4]) {
    let [ask, from, valid, to] = times;
    let (name, mode) = (name.to_owned(), Mode::Exclusive);
    note(records, ask, client, What::Ask { claim, name: name.clone(), mode });
    let valid_until = valid * MILLISECOND;
    note(records, from, client, What::Granted { claim, token: claim, valid_until });
    let (fenced, accepted) = (false, to <= valid);
    let effect = What::Effect { claim, name, fenced, token: claim, accepted, sequence: claim };
    note(records, to.midpoint(valid.min(to)), client, effect);
    note(records, to, client, What::Release { claim });
    note(records, to, client, What::Released { claim });
}

/// A run with a pause, a kill and, if wanted, two holders at once.
fn history(broken: bool) -> Vec<Record> {
    let mut records = Vec::new();
    let clients = ["1/0", "1/1", "2/0", "10/0"];
    for (claim, client) in (1..=40).zip(clients.iter().cycle()) {
        let from = claim * 100;
        let name = if claim % 5 == 0 { "b<i>&\"" } else { "orders" };
        hold(&mut records, client, claim, name, [from - 80, from, from + 300, from + 85]);
    }
    for (fault, kind, process, from) in [(1, "pause", "1", 1500), (2, "kill", "2", 2600)] {
        let (kind, process) = (kind.to_owned(), process.to_owned());
        note(&mut records, from, "driver", What::FaultBegins { fault, kind, process });
        note(&mut records, from + 250, "driver", What::FaultEnds { fault, hit: true });
    }
    if broken {
        hold(&mut records, "10/0", 99, "orders", [1800, 2140, 2200, 2290]);
    }
    records
}

fn page(records: &[Record]) -> String {
    timeline(records, &check(records, &Demands::none()))
}

/// Every tag that is opened is closed, in order.
fn well_formed(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let body = page.find("<body>").expect("a body");
    for tag in page[body..].split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("an end of the tag");
        let name = tag.trim_start_matches('/').split_whitespace().next().unwrap_or_default();
        if tag.starts_with('/') {
            if name != "html" {
                assert_eq!(open.pop(), Some(name));
            }
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn the_page_is_well_formed() {
    for broken in [false, true] {
        well_formed(&page(&history(broken)));
    }
    well_formed(&page(&[]));
}

#[test]
fn the_page_loads_and_runs_nothing() {
    let page = page(&history(true)).replace("http://www.w3.org/2000/svg", "");
    for word in ["<script", "http:", "https:", "<link", "<img", "@import"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn a_violation_is_marked() {
    let sound = page(&history(false));
    assert!(!sound.contains("class=\"violation\"") && !sound.contains("Violations"));
    assert!(sound.contains(">PASS</span>"));
    let broken = page(&history(true));
    assert!(broken.contains("1 exclusion</text>"));
    assert!(broken.contains("<circle class=\"violation\""));
    assert!(broken.contains(" bad\""));
    assert!(broken.contains(">FAIL</span>"));
}

#[test]
fn text_is_escaped() {
    let page = page(&history(true));
    assert!(page.contains("b&lt;i&gt;&amp;&quot;") && !page.contains("b<i>"));
    assert_eq!(escape("'\u{1b}"), "&#39;\u{fffd}");
}

#[test]
fn a_long_history_is_cut_and_the_page_says_so() {
    let mut records = Vec::new();
    for claim in 1..=5_000 {
        hold(&mut records, "1/0", claim, "a", [claim, claim, claim + 1, claim + 1]);
    }
    let beginning = page(&records);
    assert!(beginning.contains("This page shows the beginning: 200"), "{}", &beginning[..6000]);
    hold(&mut records, "2/0", 9_999, "a", [4_000, 4_000, 4_001, 4_001]);
    let around = page(&records);
    assert!(around.contains("This page shows the time around the first violation"));
    assert!(around.contains("<circle class=\"violation\""));
    assert!(around.matches("<rect").count() < 5_000);
}

/// Writes a page to look at: `LAB_PICTURE=/tmp/timeline.html cargo test -p lockkeeper-lab`.
#[test]
fn a_page_to_look_at() {
    let records = history(true);
    let report = check(&records, &Demands::none());
    assert_eq!(report.verdict, Verdict::Fail);
    if let Some(path) = std::env::var_os("LAB_PICTURE") {
        std::fs::write(path, timeline(&records, &report)).expect("a page");
    }
}

/// A strip of one panel.
fn strip_of(records: &[Record]) -> String {
    let report = check(records, &Demands::none());
    let steps = [records[0].at];
    let verdict = ("FAILS", "fail", "a <b>");
    let panel = Panel::Timeline {
        heading: "x & y",
        verdict,
        records,
        report: &report,
        steps: &steps,
        marks: &[],
    };
    strip(&[panel])
}

#[test]
fn a_strip_has_a_red_area_where_two_held_at_once_and_only_there() {
    assert!(strip_of(&history(true)).contains("class=\"overlap\""));
    let sound = strip_of(&history(false));
    assert!(!sound.contains("class=\"overlap\""));
    assert!(sound.contains("x &amp; y") && sound.contains("a &lt;b&gt;"));
    assert!(sound.contains("prefers-color-scheme: dark"));
}
