//! What every page and block must have, so that the other tests find what they try.

use lockkeeper_docs::markdown::blocks;
use lockkeeper_docs::pages::{Page, pages, root};
use std::fs;

/// What a block can be. Those of the first line are tried.
const LANGUAGES: &[&str] = &[
    "rust", "console", "sh", //
    "ini", "json", "promql", "sql", "text", "toml", "yaml",
];

#[test]
fn every_block_says_what_it_is() {
    let mut wrong = Vec::new();
    for page in users() {
        for block in blocks(&page.text).unwrap_or_else(|error| panic!("{}: {error}", page.path)) {
            // There, rustdoc takes a block without a word for Rust, and tries it.
            let is_rustdoc =
                page.is_in_rustdoc() && (block.language.is_empty() || block.language == "no_run");
            let known = LANGUAGES.contains(&block.language.as_str());
            let flags = match block.language.as_str() {
                "rust" => "no_run",
                "console" | "sh" => "no-run",
                _ => "",
            };
            if !(known || is_rustdoc) || block.flags.iter().any(|flag| flag != flags) {
                wrong.push(format!(
                    "{}:{}: {:?} {:?}",
                    page.path, block.line, block.language, block.flags
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "say what each block is ({LANGUAGES:?}):\n{}", wrong.join("\n"));
}

/// What is typed at a prompt is a command, and is tried unless it says that it is not.
#[test]
fn commands_are_not_hidden_in_text() {
    for page in users().iter().filter(|page| !page.is_in_rustdoc()) {
        for block in blocks(&page.text).unwrap() {
            let typed = block.text.lines().find(|line| line.starts_with("$ "));
            assert!(
                typed.is_none() || block.language == "console",
                "{}:{}: {typed:?} is in a block that is no console",
                page.path,
                block.line
            );
        }
    }
}

#[test]
fn every_page_of_a_store_is_in_the_documentation_of_the_library() {
    for page in users().iter().filter(|page| page.is_in_rustdoc()) {
        let name = page.path.rsplit('/').next().unwrap();
        let link = root().join("crates/lockkeeper/docs").join(name);
        assert_eq!(fs::read_to_string(link).ok().as_ref(), Some(&page.text), "{}", page.path);
    }
}

#[test]
fn commands_of_cargo_that_are_not_run_exist() {
    let usage = fs::read_to_string(root().join("crates/xtask/src/main.rs")).unwrap();
    let mut seen = 0;
    for page in pages().unwrap() {
        for (what, rest) in
            page.text.lines().filter_map(|line| Some((line, line.split_once("cargo xtask ")?.1)))
        {
            let verb = rest.split(|letter: char| !letter.is_ascii_lowercase()).next().unwrap();
            seen += 1;
            assert!(usage.contains(&format!("[\"{verb}\"")), "{}: {what}", page.path);
        }
        for (what, rest) in
            page.text.lines().filter_map(|line| Some((line, line.split_once("--example ")?.1)))
        {
            let name = rest.split_whitespace().next().unwrap();
            let file = format!("crates/lockkeeper/examples/{name}.rs");
            assert!(
                root().join(&file).exists()
                    || root().join(file.replace(".rs", "/main.rs")).exists(),
                "{}: {what}",
                page.path
            );
        }
    }
    assert!(seen > 5, "only {seen} commands were found: are the pages read?");
}

fn users() -> Vec<Page> {
    pages().unwrap().into_iter().filter(Page::is_for_users).collect()
}
