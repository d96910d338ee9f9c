//! Pages that say the same thing say it alike: the two READMEs, and tables of what the code has.

use lockkeeper_docs::links::targets;
use lockkeeper_docs::markdown::{Block, blocks};
use lockkeeper_docs::pages::root;
use std::collections::BTreeSet;
use std::fs;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn blocks_of(page: &str, language: &str) -> Vec<Block> {
    let blocks = blocks(&read(page)).unwrap();
    blocks.into_iter().filter(|block| block.language == language).collect()
}

/// The lines without comments, which are in the language of the page.
fn code(block: &Block, comment: &str) -> Vec<String> {
    let lines = block.text.lines();
    let bare = lines.map(|line| line.split(comment).next().unwrap().trim_end().to_owned());
    bare.filter(|line| !line.is_empty()).collect()
}

/// The rows of the table whose first title is `title`, as cells.
fn table(page: &str, title: &str) -> Vec<Vec<String>> {
    let text = read(page);
    let head = format!("| {title} |");
    let rows = text.lines().skip_while(|line| !line.starts_with(&head)).skip(2);
    let rows: Vec<Vec<String>> = rows
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()
        })
        .collect();
    assert!(!rows.is_empty(), "{page} has no table that begins with {title:?}");
    rows
}

/// What stands in backticks.
fn names(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_readme_is_short_and_leads_to_the_chinese_one() {
    let readme = read("README.md");
    let lines = readme.lines().count();
    assert!(lines <= 130, "README.md has {lines} lines: move details to docs");
    assert!(readme.lines().nth(1).unwrap().contains("(README.zh-CN.md)"));
    assert!(read("README.zh-CN.md").lines().nth(1).unwrap().contains("(README.md)"));
}

#[test]
fn both_readmes_have_the_same_commands() {
    let commands = |page| -> Vec<String> {
        blocks_of(page, "console").iter().flat_map(|block| code(block, " #")).collect()
    };
    assert_eq!(commands("README.zh-CN.md"), commands("README.md"));
}

#[test]
fn both_readmes_have_the_same_code() {
    let english: Vec<_> = blocks_of("README.md", "rust").iter().map(|it| code(it, "//")).collect();
    let chinese = blocks_of("README.zh-CN.md", "rust");
    assert!(chinese.len() >= 3, "the lock, the tour and the fence");
    for block in chinese {
        let code = code(&block, "//");
        assert!(english.contains(&code), "README.md has no such block:\n{}", code.join("\n"));
    }
}

#[test]
fn both_readmes_have_the_same_stores_and_pictures() {
    let urls = |page, title| -> Vec<Vec<String>> {
        table(page, title).iter().map(|row| names(&row.join(" "))).collect()
    };
    let of_this_repository = |page: &str| -> BTreeSet<String> {
        let targets = targets(&read(page)).into_iter().map(|(_, target)| target);
        targets.filter(|target| target.ends_with(".svg")).collect()
    };
    assert_eq!(urls("README.zh-CN.md", "存储"), urls("README.md", "store"));
    let (english, chinese) =
        (of_this_repository("README.md"), of_this_repository("README.zh-CN.md"));
    assert!(chinese.is_subset(&english), "{chinese:?}");
}

#[test]
fn exit_codes_are_the_same_everywhere() {
    let codes = |page, title| -> BTreeSet<String> {
        let numbers = table(page, title).into_iter().map(|row| row[0].clone());
        numbers.filter(|code| code.starts_with(|letter: char| letter.is_ascii_digit())).collect()
    };
    let documented = codes("docs/command.md", "exit code");
    assert_eq!(codes("README.zh-CN.md", "退出码"), documented);
    assert_eq!(codes("docs/production.md", "code"), documented);
    let source = read("crates/lockkeeper-cli/src/exit.rs");
    let numbers = source.lines().filter(|line| line.contains(": u8 = "));
    let numbers = numbers.filter_map(|line| line.split(" = ").nth(1)?.strip_suffix(';'));
    let documented: BTreeSet<&str> = documented.iter().flat_map(|code| code.split(", ")).collect();
    // Success is not in the tables.
    assert_eq!(numbers.filter(|code| *code != "0").collect::<BTreeSet<_>>(), documented);
}

#[test]
fn the_runbook_has_every_kind_of_error_and_every_loss() {
    for (file, name, title) in [
        ("crates/lockkeeper/src/error.rs", "ErrorKind", "`ErrorKind`"),
        ("crates/lockkeeper/src/loss.rs", "LossReason", "`LossReason`"),
    ] {
        let source = read(file);
        let body = source.split_once(&format!("pub enum {name} {{\n")).expect(name).1;
        let body = body.split("\n}").next().unwrap();
        // Variants are the lines with four spaces and a name.
        let variants: BTreeSet<String> = body
            .lines()
            .filter_map(|line| line.strip_prefix("    "))
            .filter(|line| line.starts_with(|letter: char| letter.is_ascii_uppercase()))
            .map(|line| line.split([',', ' ', '(']).next().unwrap().to_owned())
            .collect();
        assert!(variants.len() >= 5, "{variants:?}");
        let documented: BTreeSet<String> =
            table("docs/production.md", title).iter().flat_map(|row| names(&row[0])).collect();
        assert_eq!(documented, variants, "docs/production.md, {name}");
    }
}
