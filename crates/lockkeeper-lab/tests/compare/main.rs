//! The pages of the comparison are made of a stored run alone, and say what is in it.
//!
//! `stored.json` is a short run of a few rows and a second one; `stored.md` and `stored.html` are its
//! pages. Where a change of the pages is meant, `LOCKKEEPER_RENDER=1` writes them anew.

use lockkeeper_lab::compare::{Cell, Comparison, load, render};
use lockkeeper_lab::screen;
use std::path::{Path, PathBuf};

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compare")
}

fn stored() -> Comparison {
    load(&here().join("stored.json")).expect("readable").expect("there is one")
}

/// Compares a page with the file, line by line, so that a difference is found.
fn same(file: &Path, made: &str) {
    if std::env::var("LOCKKEEPER_RENDER").is_ok_and(|value| value == "1") {
        std::fs::write(file, made).expect("written");
    }
    let found = std::fs::read_to_string(file).expect("the page is there");
    for (number, (found, made)) in found.lines().zip(made.lines()).enumerate() {
        assert_eq!(found, made, "{} line {}", file.display(), number + 1);
    }
    assert_eq!(found.len(), made.len(), "{} ends elsewhere", file.display());
}

#[test]
fn a_stored_run_makes_the_same_pages() {
    let stored = stored();
    same(&here().join("stored.md"), &render::markdown(&stored));
    same(&here().join("stored.html"), &render::html(&stored));
}

/// Where the pages in `docs` were changed by hand, or the renderer and not the pages.
#[test]
fn the_pages_in_docs_are_those_of_the_run_in_docs() {
    let docs = here().join("../../../../docs");
    let Some(stored) = load::<Comparison>(&docs.join("comparison.json")).expect("readable") else {
        assert!(!docs.join("comparison.md").exists(), "a page without a run");
        return;
    };
    same(&docs.join("comparison.md"), &render::markdown(&stored));
    same(&docs.join("comparison.html"), &render::html(&stored));
    for (name, picture) in render::pictures(&stored) {
        same(&docs.join("pictures").join(name), &picture);
    }
    assert!(!stored.first.quick, "a short run is not published");
}

/// The picture of the README is the one of the session that is stored beside it.
#[test]
fn the_terminal_in_docs_is_that_of_the_session_in_docs() {
    let stored = load(&screen::pictures().join("terminal.json")).expect("readable");
    let session: screen::Session = stored.expect("cargo xtask picture");
    same(&screen::pictures().join("terminal.svg"), &screen::render(&session));
}

#[test]
fn what_was_not_measured_is_unknown_and_never_a_figure() {
    let mut stored = stored();
    let row = &mut stored.first.rows[0];
    row.cells.remove("alone-p50");
    row.cells.insert("handover-16".to_owned(), Cell::Unknown("the dog ate it".to_owned()));
    let name = format!("| **{} {}** |", stored.first.rows[0].store, stored.first.rows[0].name);
    let page = render::markdown(&stored);
    let (_, section) = page.split_once("## Performance").expect("a section");
    let line = section.lines().find(|line| line.starts_with(&name)).expect("a row");
    let cells: Vec<&str> = line.split(" | ").collect();
    assert_eq!((cells[1], cells[5]), ("*unknown*", "*unknown*"), "{line}");
    for page in [page, render::html(&stored)] {
        assert!(page.contains("not measured") || page.contains("the dog ate it"), "{page}");
    }
}

/// The advice is made of the figures: a recipe that broke a promise is not told to be the one to take.
#[test]
fn the_advice_follows_the_verdicts() {
    let mut stored = stored();
    let advised = |stored: &Comparison| {
        let page = render::markdown(stored);
        let advice = page.split("## Which should I take").nth(1).expect("a section").to_owned();
        advice.split("\n## ").next().expect("its text").to_owned()
    };
    let fastest = |text: &str| {
        let name = text.split("The fastest of them").nth(1)?;
        name.split("**").nth(1).map(str::to_owned)
    };
    let before = fastest(&advised(&stored)).expect("one of them held everything");
    for row in &mut stored.first.rows {
        if before == format!("{} {}", row.store, row.name) {
            row.cells.insert("claims-pause".to_owned(), Cell::Broken("exclusion: 1".to_owned()));
        }
    }
    let after = advised(&stored);
    assert_ne!(fastest(&after), Some(before.clone()), "{after}");
    let (sound, _) = after.split_once("The fastest of them").expect("others held everything");
    assert!(!sound.contains(&before), "{after}");
}

/// One that serves in no order is not the one to take, however fast it is.
#[test]
fn the_advice_prefers_the_order_of_asking() {
    let mut stored = stored();
    let taken = |stored: &Comparison| {
        let page = render::markdown(stored);
        let name =
            page.split("The fastest of them").nth(1).expect("one held everything").to_owned();
        name.split("**").nth(1).expect("its name").to_owned()
    };
    let before = taken(&stored);
    for row in &mut stored.first.rows {
        let Some(Cell::Words(words)) = row.cells.get_mut("capabilities") else { continue };
        if before == format!("{} {}", row.store, row.name) {
            words.retain(|word| word != "fair");
        }
    }
    assert_ne!(taken(&stored), before);
    assert!(render::markdown(&stored).contains(&format!("**{before}** is faster")));
}

/// Nothing but the file itself: no script, no style, no picture from elsewhere.
#[test]
fn the_page_with_charts_needs_nothing_else() {
    let page = render::html(&stored());
    for word in ["<script", "<link", "<img", "@import", "url(", "http://", "https://"] {
        assert!(!page.contains(word), "{word}");
    }
    assert!(page.contains("prefers-color-scheme: dark"));
}
