//! What is printed for reading and for other programs.

use crate::support::{World, code, lockkeeper, stdout};
use serde_json::Value;
use std::process::{Command, Stdio};

fn printed(words: &[&str]) -> String {
    let output = lockkeeper(words).output().unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
    stdout(&output)
}

#[test]
fn recipes_in_three_forms_name_every_store() {
    let (human, markdown) = (printed(&["recipes"]), printed(&["recipes", "--markdown"]));
    let json: Value = serde_json::from_str(&printed(&["recipes", "--json"])).unwrap();
    for recipe in json.as_array().unwrap() {
        let example = recipe["example"].as_str().unwrap();
        assert!(human.contains(example), "{human}");
        assert!(markdown.contains(&format!("| `{example}` |")), "{markdown}");
    }
    let titles = "| store URL | recipe | reach | shared | permits | fair | fencing | re-entrant | \
                  min_hold | wakes | durable | portable | feature |";
    assert_eq!(markdown.lines().next(), Some(titles));
    let columns = |line: &str| line.matches('|').count();
    assert!(markdown.lines().all(|line| columns(line) == columns(titles)), "{markdown}");
}

/// The tables, and the rights that are enough; that they are is tried on servers by the lab.
#[test]
fn tables_and_rights_are_printed_for_databases() {
    for (url, recipe, tables) in [
        // The third is a comment.
        ("postgres://host/app?schema=locks", "table", 3),
        ("mariadb://host/app", "table", 3),
        ("postgres://host/app", "advisory", 2),
        ("mariadb://host/app", "get-lock", 2),
    ] {
        let separator = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{separator}recipe={recipe}");
        let script = printed(&["schema", "--store", &url]);
        assert_eq!(script.matches("CREATE ").count(), tables, "{script}");
        assert!(script.contains("GRANT SELECT, INSERT, UPDATE, DELETE ON"), "{script}");
        assert_eq!(script.contains("-- CREATE TABLE IF NOT EXISTS"), recipe == "table", "{script}");
        assert_eq!(script.contains("GRANT USAGE ON SCHEMA locks"), url.contains("schema"));
    }
    let script = printed(&["schema", "--store", "mariadb://host/app?table=mine", "--from", "0"]);
    assert!(script.contains("ALTER TABLE mine ADD COLUMN waiting"), "{script}");
    for (url, from) in [("mariadb://host/app", "1"), ("redis://host", "0")] {
        let output = lockkeeper(&["schema", "--store", url, "--from", from]).output().unwrap();
        assert_ne!(code(&output), 0, "{output:?}");
    }
}

#[test]
fn what_cannot_be_printed_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = lockkeeper(&["recipes"]).stdout(full).output().unwrap();
    assert_eq!(code(&output), 74, "{output:?}");
}

#[test]
fn the_page_of_stores_shows_the_table_as_it_is() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stores.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = printed(&["recipes", "--markdown"]);
    assert!(page.contains(&table), "put this into docs/stores.md (cargo xtask table):\n{table}");
}

#[test]
fn completions_and_manual_pages_are_complete() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(printed(&["completions", shell]).contains("max-hold"), "{shell}");
    }
    assert!(printed(&["man"]).contains(".TH lockkeeper 1"));
    let run = printed(&["man", "run"]);
    assert!(run.contains(".TH lockkeeper-run 1"), "{run}");
    assert!(run.contains("LOCKKEEPER_TOKEN") && run.contains("the lock was lost"), "{run}");
    assert!(run.contains("ticket\\-file"), "{run}");
    for (verb, hint) in
        [("lock", "on\\-behalf\\-of"), ("keep", "no longer good"), ("unlock", "TICKET")]
    {
        let page = printed(&["man", verb]);
        assert!(
            page.contains(&format!(".TH lockkeeper-{verb} 1")) && page.contains(hint),
            "{page}"
        );
    }
    assert!(printed(&["run", "--help"]).contains("LOCKKEEPER_TOKEN"));
    assert!(printed(&["--version"]).starts_with("lockkeeper "));
}

#[test]
fn all_manual_pages_are_written_to_a_folder() {
    let world = World::new();
    let dir = world.file("man/man1");
    assert_eq!(printed(&["man", "--dir", &dir]), "");
    let page = |name: &str| world.read(&format!("man/man1/{name}.1"));
    for name in ["lockkeeper", "lockkeeper-run", "lockkeeper-ls", "lockkeeper-id-next"] {
        assert!(page(name).contains(&format!(".TH {name} 1")), "{name}: {}", page(name));
    }
    assert_eq!(page("lockkeeper-run"), printed(&["man", "run"]));
    assert!(printed(&["man", "--help"]).contains("man -l -"));
    let output = lockkeeper(&["man", "--dir", "/dev/null/x"]).output().unwrap();
    assert_eq!(code(&output), 74, "{output:?}");
}

#[test]
fn nobody_reading_is_no_disaster() {
    let world = World::new();
    let _holder = world.holder(&[], "x");
    for words in [
        &["ls"][..],
        &["ls", "--json"],
        &["recipes"],
        &["man"],
        &["completions", "bash"],
        &["--help"],
    ] {
        let mut command = world.command(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{output:?}");
        assert_eq!(code(&output), 0, "{words:?}");
    }
}

#[test]
fn neither_output_being_open_is_no_disaster() {
    let world = World::new();
    let script = r#"exec "$0" "$@" >&- 2>&-"#;
    for (words, wanted) in
        [(&["ls"][..], 0), (&["run", "", "true"], 64), (&["run", "x", "true"], 0)]
    {
        let mut command = Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_lockkeeper")]).args(words);
        command.env("LOCKKEEPER_STORE", world.store());
        assert_eq!(command.status().unwrap().code(), Some(wanted), "{words:?}");
    }
}
