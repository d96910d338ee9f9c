//! The pages that a run leaves behind.

use super::act::{Act, Drawn, Shown};
use super::story::{Story, Told};
use crate::picture;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::Path;

/// Writes the page of a story and its picture.
pub(super) fn write(folder: &Path, story: &Story, told: &Told) -> Result<()> {
    if told.acts.is_empty() {
        return Ok(());
    }
    let most = told.acts.iter().map(Act::most).fold(0.0, f64::max);
    let drawn: Vec<Drawn> = told.acts.iter().map(Drawn::of).collect();
    let panels = drawn.iter().zip(&told.acts).map(|(drawn, act)| drawn.panel(act, most));
    let picture = picture::strip(&panels.collect::<Vec<_>>());
    save(folder, &format!("{}.svg", story.slug), &picture)?;
    save(folder, &format!("{}.md", story.slug), &page(story, told)?)
}

fn page(story: &Story, told: &Told) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "# {}: {}\n", story.id, story.title)?;
    writeln!(text, "{}\n", wrapped(story.setting, 120))?;
    writeln!(text, "![{}]({}.svg)\n", story.title, story.slug)?;
    writeln!(
        text,
        "Numbers in the picture are the steps below; time is not to scale. A thin grey line waits, a \
         bar holds, pale is after its end, hatched is the fault, red is what went wrong.\n"
    )?;
    for act in &told.acts {
        let what = if act.cure { "the cure" } else { "what fails" };
        writeln!(text, "## {} ({what})\n", act.heading)?;
        for (number, (at, step)) in act.steps.iter().enumerate() {
            writeln!(text, "{}. {:.2} s: {step}", number + 1, act.seconds(*at))?;
        }
        writeln!(text, "\n**{}**: {}\n", act.word(), act.found)?;
        if let Shown::Figures(figures) = &act.shown {
            writeln!(text, "| | |\n|---|---|")?;
            for figure in figures {
                writeln!(text, "| {} | {} |", figure.what, figure.written)?;
            }
            writeln!(text)?;
        }
        if let Some(judged) = act.judged() {
            writeln!(text, "{judged}\n")?;
        }
    }
    writeln!(text, "## What to remember\n\n{}\n", wrapped(story.lesson, 120))?;
    writeln!(
        text,
        "---\n\nMade by `cargo xtask stories {} --out docs/stories`, on real servers of the lab. \
         [All stories](README.md)",
        story.id
    )?;
    Ok(text)
}

/// Writes the table of all stories.
pub(super) fn write_index(folder: &Path, tellings: &[(&Story, Told)]) -> Result<()> {
    let mut text = String::from(
        "# The known failures of distributed locks, and their cures\n\n\
         Each page is a small program that was run on real servers: a scheme that fails, with the \
         fault injected at the exact step at which it hurts, and then the same with its cure. A \
         judge reads the history of each, and does not know which of the two it is; wake-ups, \
         connections and times are counted.\n\n\
         | | failure | scheme | verdict | what was found |\n|---|---|---|---|---|\n",
    );
    for (story, told) in tellings {
        let mut first = format!("[{}]({}.md) | {}", story.id, story.slug, story.title);
        for act in &told.acts {
            let found = act.found.replace('|', "\\|");
            writeln!(text, "| {first} | {} | **{}** | {found} |", act.heading, act.word())?;
            first = " | ".to_owned();
        }
    }
    text.push_str(
        "\nMade by `cargo xtask stories --out docs/stories`. `cargo xtask stories F4 F6` tells some \
         of them, `--times 3` each of them three times. The exit code is 0 if every scheme failed \
         that was to fail and every cure held, 1 if a cure failed, 2 if a scheme did not fail or a \
         cure was not put to the test, 3 if the lab could not do its work.\n",
    );
    save(folder, "README.md", &text)
}

fn save(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The text in lines of at most this many letters.
pub(super) fn wrapped(text: &str, width: usize) -> String {
    let mut lines = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let letters = word.chars().count();
        if length > 0 && length + 1 + letters > width {
            lines.push('\n');
            length = 0;
        } else if length > 0 {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(word);
        length += letters;
    }
    lines
}
