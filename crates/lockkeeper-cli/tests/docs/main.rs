//! The commands that the pages show are run as they stand there, page by page, each in an empty home.
//! What a block can say, and how, is told in `lockkeeper_docs`.

mod command;
mod expected;
mod session;

use anyhow::{Context, Result};
use libtest_mimic::{Arguments, Failed, Trial};
use lockkeeper_docs::markdown::blocks;
use lockkeeper_docs::pages::{Page, pages};
use lockkeeper_lab::server::{Kind, Lab, missing};
use std::sync::Arc;

fn main() -> Result<()> {
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(4);
    let lab = Arc::new(Lab::open()?);
    let mut trials = Vec::new();
    let mut untried = Vec::new();
    for page in pages()?.into_iter().filter(Page::is_for_users) {
        let blocks = blocks(&page.text).map_err(anyhow::Error::msg).context(page.path.clone())?;
        let commands = |language: &str| language == "console" || language == "sh";
        let (not_run, run): (Vec<_>, Vec<_>) = blocks
            .into_iter()
            .filter(|block| commands(&block.language))
            .partition(|block| block.is("no-run"));
        untried.extend(not_run.iter().map(|block| format!("{}:{}", page.path, block.line)));
        if run.is_empty() {
            continue;
        }
        let kinds: Vec<Kind> = Kind::ALL
            .iter()
            .copied()
            .filter(|kind| run.iter().any(|block| session::names(*kind, &block.text)))
            .collect();
        let reason = missing(&kinds);
        let lab = lab.clone();
        let trial = Trial::test(page.path.clone(), move || {
            session::run(&lab, &kinds, &page.path, &run)
                .map_err(|error| Failed::from(format!("{error:?}")))
        });
        trials.push(match reason {
            Some(reason) => trial.with_kind(reason.to_string()).with_ignored_flag(true),
            None => trial,
        });
    }
    for (name, case) in expected::CASES {
        trials.push(Trial::test(*name, || {
            case();
            Ok(())
        }));
    }
    if !arguments.list {
        println!("{} blocks of commands are marked no-run: {}", untried.len(), untried.join(", "));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(lab);
    conclusion.exit();
}
