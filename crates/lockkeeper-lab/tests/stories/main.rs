//! The known failures of distributed locks: every scheme that is to fail fails, and every cure holds.
//!
//! With `LOCKKEEPER_LAB_STORIES=all`, which is what `cargo xtask test --stories` sets, they are told in
//! full size: with a thousand waiters, and in every store.

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use lockkeeper_lab::check::Verdict;
use lockkeeper_lab::server::missing;
use lockkeeper_lab::stories::{STORIES, Stage, Story};
use std::path::PathBuf;

fn main() {
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(4);
    let all = std::env::var("LOCKKEEPER_LAB_STORIES").is_ok_and(|value| value == "all");
    let mut trials: Vec<Trial> = STORIES.iter().map(|story| trial(story, all)).collect();
    trials.push(Trial::test("pages::every_story_has_one", || told(every_story_has_one())));
    libtest_mimic::run(&arguments, trials).exit();
}

fn told(outcome: Result<()>) -> Result<(), Failed> {
    outcome.map_err(|error| Failed::from(format!("{error:#}")))
}

fn trial(story: &'static Story, all: bool) -> Trial {
    let trial = Trial::test(story.slug, move || told(tell(story, all)));
    let reason = missing(story.needs).map(|reason| reason.to_string());
    match reason {
        Some(reason) => trial.with_kind(reason).with_ignored_flag(true),
        None => trial,
    }
}

fn tell(story: &Story, whole: bool) -> Result<()> {
    let stage = Stage::open(PathBuf::from(env!("CARGO_BIN_EXE_lab")), whole, false)?;
    let outcome = story.tell(&stage)?;
    let found: Vec<String> = outcome
        .acts
        .iter()
        .map(|act| format!("{}: {}: {}", act.heading, act.word(), act.found))
        .collect();
    let verdict = outcome.verdict();
    ensure!(verdict == Verdict::Pass, "{verdict}: {found:?} {:?}", outcome.off_script);
    Ok(())
}

/// The pages were made by a run of the stories as they are.
fn every_story_has_one() -> Result<()> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/stories");
    let read = |name: &str| {
        let path = folder.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))
    };
    let index = read("README.md")?;
    for story in STORIES {
        let page = read(&format!("{}.md", story.slug))?;
        let again = "run `cargo xtask stories --out docs/stories`";
        ensure!(page.contains(story.title), "the page of {} has another title: {again}", story.id);
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (page, setting) = (plain(&page), plain(story.setting));
        ensure!(page.contains(&setting), "the page of {} has another setting: {again}", story.id);
        ensure!(page.contains("**FAILS**") && page.contains("**HOLDS**"), "{} is half", story.id);
        ensure!(!page.contains("**UNKNOWN**"), "{} is unknown", story.id);
        ensure!(index.contains(story.slug), "{} is not in the index: {again}", story.id);
        let picture = read(&format!("{}.svg", story.slug))?;
        ensure!(picture.contains("prefers-color-scheme: dark"), "{}: no dark picture", story.id);
    }
    Ok(())
}
