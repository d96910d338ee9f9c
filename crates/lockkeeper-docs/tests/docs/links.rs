//! Every link within the repository leads to a file, and every anchor to a heading.

use lockkeeper_docs::links::{anchors, targets};
use lockkeeper_docs::pages::{pages, root};
use std::path::Path;

#[test]
fn every_link_within_the_repository_leads_somewhere() {
    let mut wrong = Vec::new();
    let mut followed = 0;
    for page in pages().unwrap() {
        for (line, target) in targets(&page.text) {
            // Names of Rust, which rustdoc checks.
            let is_rust = page.is_in_rustdoc() && (target.contains("::") || !target.contains('.'));
            if target.contains("://") || target.starts_with("mailto:") || is_rust {
                continue;
            }
            followed += 1;
            if let Err(why) = follow(&page.path, &page.text, &target) {
                wrong.push(format!("{}:{line}: {target}: {why}", page.path));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(followed > 50, "only {followed} links were found: are the pages read?");
}

fn follow(page: &str, text: &str, target: &str) -> Result<(), String> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    if path.starts_with('/') {
        return Err("begin at the page, not at a root that a forge does not know".to_owned());
    }
    let root = root();
    let place = root.join(Path::new(page).parent().unwrap_or(Path::new(""))).join(path);
    if !path.is_empty() && !place.exists() {
        return Err("there is no such file".to_owned());
    }
    if anchor.is_empty() {
        return Ok(());
    }
    let there = match path {
        "" => text.to_owned(),
        _ if path.ends_with(".md") => std::fs::read_to_string(place).map_err(|e| e.to_string())?,
        _ => return Err("only pages have anchors".to_owned()),
    };
    let anchors = anchors(&there);
    match anchors.iter().any(|each| each == anchor) {
        true => Ok(()),
        false => Err(format!("there is no such heading, but {}", anchors.join(", "))),
    }
}
