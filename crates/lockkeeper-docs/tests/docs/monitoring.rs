//! What the page on monitoring says is what there is, and the board and the alerts ask for nothing else.

use lockkeeper::metrics::{Kind, METRICS};
use lockkeeper_docs::pages::root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

const BOARD: &str = "docs/monitoring/grafana.json";
const ALERTS: &str = "docs/monitoring/alerts.yml";
const TESTS: &str = "docs/monitoring/alerts_test.yml";

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The rows of the tables of a section that begin with a name: its name, its type, its labels.
fn rows(section: &str) -> BTreeMap<String, (String, String)> {
    let page = read("docs/monitoring.md");
    let section =
        page.split("\n## ").find(|part| part.starts_with(section)).expect(section).to_owned();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| -> Vec<String> {
        row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect()
    });
    cells.map(|cells| (cells[0].clone(), (cells[1].clone(), cells[2].clone()))).collect()
}

/// Every word that could be the name of a metric.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words.filter(|word| word.starts_with("lockkeeper_")).map(str::to_owned).collect()
}

#[test]
fn the_table_of_the_library_is_what_it_measures() {
    let measured: BTreeMap<_, _> = METRICS
        .iter()
        .map(|it| (it.name.to_owned(), (it.kind.to_string(), it.labels.join(", "))))
        .collect();
    assert_eq!(rows("The library\n"), measured);
    // The same table, with fewer words, is in the documentation of the module.
    let module = named(&read("crates/lockkeeper/src/metrics.rs"));
    assert!(METRICS.iter().all(|metric| module.contains(metric.name)));
}

#[test]
fn the_board_and_the_alerts_ask_for_what_there_is() {
    let mut known: BTreeSet<String> = rows("The exporter\n").into_keys().collect();
    assert!(known.contains("lockkeeper_up"), "{known:?}");
    for metric in METRICS {
        match metric.kind {
            // As Prometheus has them.
            Kind::Histogram => known
                .extend(["bucket", "sum", "count"].map(|part| format!("{}_{part}", metric.name))),
            _ => _ = known.insert(metric.name.to_owned()),
        }
    }
    for file in [BOARD, ALERTS, TESTS] {
        let asked = named(&read(file));
        let unknown: Vec<_> = asked.difference(&known).collect();
        assert!(asked.len() >= 8 && unknown.is_empty(), "{file} asks for {unknown:?}");
    }
}

/// A metric that nobody looks at is one too many, or was forgotten.
#[test]
fn the_board_shows_every_metric_of_the_library() {
    let asked = named(&read(BOARD));
    for metric in METRICS {
        let shown = asked.iter().any(|name| name.starts_with(metric.name));
        assert!(shown, "{} is not on the board", metric.name);
    }
}

#[test]
fn the_board_is_json_and_its_panels_have_a_place_of_their_own() {
    let board: serde_json::Value = serde_json::from_str(&read(BOARD)).unwrap();
    let panels = board["panels"].as_array().unwrap();
    assert!(panels.len() >= 10);
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id is another's");
        let place = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{title} is too wide");
        for (x, y) in (place("x")..place("x") + place("w"))
            .flat_map(|x| (place("y")..place("y") + place("h")).map(move |y| (x, y)))
        {
            assert!(taken.insert((x, y)), "{title} lies on another");
        }
        let targets = panel["targets"].as_array().map_or(0, Vec::len);
        assert_eq!(targets == 0, panel["type"] == "row", "{title}");
    }
}

#[test]
fn every_alert_has_a_row_that_says_what_to_do() {
    let alerts: BTreeSet<String> = read(ALERTS)
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: ").map(str::to_owned))
        .collect();
    let documented: BTreeMap<String, (String, String)> = rows("Alerts\n");
    assert_eq!(documented.into_keys().collect::<BTreeSet<_>>(), alerts);
}
