//! The known failures of distributed locks, each shown on real servers, and then its cure.
//!
//! A story is a small program: the setting; the scheme that fails, with the fault injected at the
//! exact step at which it hurts; what the judge finds; and the same again with the cure. A scheme
//! that did not fail is *unknown*, and so is a cure that was not put to the test.

mod act;
mod actor;
mod client;
mod f01_crash_before_expire;
mod f02_unlocks_anothers;
mod f03_failover_forgets;
mod f04_node_restarts_empty;
mod f05_clock_jumps;
mod f06_long_pause;
mod f07_lost_reply;
mod f08_herd;
mod f09_predecessor_dies;
mod f10_middle_dies;
mod f11_holder_dies;
mod f12_row_left_behind;
mod f13_connections_used_up;
mod link;
mod page;
mod scene;
mod stage;
mod story;

pub use act::{Act, Figure, Shown};
pub use actor::{ActArguments, act};
pub use stage::Stage;
pub use story::{STORIES, Story, Told};

use crate::check::Verdict;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::PathBuf;

/// Which stories to tell, and where to write them.
#[derive(Debug, Clone, Args)]
pub struct StoriesArguments {
    /// Which: F1 to F13; all of them if none is named
    #[arg(value_name = "STORY")]
    pub stories: Vec<String>,
    /// How often to tell each
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub times: u32,
    /// Where the pages and pictures go [default: a new folder]
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

/// Tells stories, and writes their pages.
///
/// # Errors
/// When there is no such story, or the lab cannot do its work.
pub fn run(arguments: &StoriesArguments) -> Result<Verdict> {
    let chosen = choose(&arguments.stories)?;
    let out = match &arguments.out {
        Some(out) => out.clone(),
        None => tempfile::Builder::new().prefix("lockkeeper-stories-").tempdir()?.keep(),
    };
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let program = std::env::current_exe()?;
    let mut verdicts = Vec::new();
    let mut broken = 0;
    for time in 1..=arguments.times {
        if arguments.times > 1 {
            println!("\n===== {time} of {}", arguments.times);
        }
        let mut tellings = Vec::new();
        for story in &chosen {
            // A lab of its own: what one story breaks is not there in the next.
            let stage = Stage::open(program.clone(), true, true)?;
            println!("\n{}  {}\n\n{}", story.id, story.title, page::wrapped(story.setting, 96));
            match story.tell(&stage) {
                Ok(told) => {
                    page::write(&out, story, &told)?;
                    verdicts.push((story.id, told.verdict()));
                    tellings.push((*story, told));
                }
                Err(error) => {
                    eprintln!("{}: {error:#}", story.id);
                    broken += 1;
                }
            }
        }
        if tellings.len() == STORIES.len() {
            page::write_index(&out, &tellings)?;
        }
    }
    println!();
    for story in &chosen {
        let mine = verdicts.iter().filter(|(id, _)| *id == story.id);
        let words: Vec<String> = mine.map(|(_, verdict)| verdict.to_string()).collect();
        println!("{:<4} {:<56} {}", story.id, story.title, words.join(" "));
    }
    println!("pages    {}", out.display());
    if broken > 0 {
        bail!("{broken} tellings could not be finished");
    }
    Ok(sum(verdicts.iter().map(|(_, verdict)| *verdict)))
}

fn choose(names: &[String]) -> Result<Vec<&'static Story>> {
    if names.is_empty() {
        return Ok(STORIES.iter().collect());
    }
    let named = |name: &String| {
        let found = STORIES.iter().find(|story| story.id.eq_ignore_ascii_case(name));
        found.with_context(|| format!("there is no story {name:?}: they are F1 to F13"))
    };
    names.iter().map(named).collect()
}

/// The worst of several verdicts.
fn sum(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    verdicts.fold(Verdict::Pass, |worst, verdict| match (worst, verdict) {
        (Verdict::Fail, _) | (_, Verdict::Fail) => Verdict::Fail,
        (Verdict::Unknown, _) | (_, Verdict::Unknown) => Verdict::Unknown,
        _ => Verdict::Pass,
    })
}
