//! Short runs of the lab on every recipe with a server: claims exclude and fenced effects hold
//! while clients, the network and the server are broken.

use libtest_mimic::{Arguments, Failed, Trial};
use lockkeeper_lab::server::{Kind, cannot_hang, missing};
use lockkeeper_lab::stores::{OwnRun, Run, STORES};
use std::process::{Command, Output};

fn main() {
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(5);
    let mut trials = Vec::new();
    for store in STORES {
        let (kind, word) = (store.kind, store.kind.word());
        for Run { recipe, work, faults } in store.runs {
            for (fault, seconds) in *faults {
                let name = format!("{word} {recipe} {work} {fault}").replace("  ", " ");
                let run = Asked { kind, recipe, work, members: "1", fault, seconds: *seconds };
                trials.push(run.trial(name));
            }
        }
        for OwnRun { recipe, members, fault, seconds } in store.own_runs {
            let run = Asked { kind, recipe, work: "lock", members, fault, seconds: *seconds };
            trials.push(run.trial(format!("{word} of {members} {fault}")));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn lab(words: &[&str]) -> Result<Output, String> {
    let run = Command::new(env!("CARGO_BIN_EXE_lab")).args(words).output();
    run.map_err(|error| error.to_string())
}

/// The number that stands first behind `title` in the printed summary.
fn counted(text: &str, title: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.trim_start().starts_with(title))?;
    line.split_whitespace().find_map(|word| word.trim_end_matches(',').parse().ok())
}

/// A run, as it is asked for.
struct Asked {
    kind: Kind,
    recipe: &'static str,
    work: &'static str,
    members: &'static str,
    fault: &'static str,
    seconds: u32,
}

impl Asked {
    /// Ignored, with the reason, where something is missing for it.
    fn trial(self, name: String) -> Trial {
        let mut reason = missing(&[self.kind]).map(|reason| reason.to_string());
        if self.fault.contains("disk-hang") {
            reason = reason.or_else(|| cannot_hang().map(|reason| reason.to_string()));
        }
        let trial = Trial::test(name, move || survives(&self).map_err(Failed::from));
        match reason {
            Some(reason) => trial.with_kind(reason).with_ignored_flag(true),
            None => trial,
        }
    }
}

fn survives(asked: &Asked) -> Result<(), String> {
    let Asked { kind, recipe, work, members, fault, seconds } = *asked;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let out = folder.path().join("history");
    let (out, seconds) = (out.to_string_lossy(), seconds.to_string());
    let mut words = vec!["run", "--server", kind.word(), "--work", work];
    words.extend(["--members", members]);
    words.extend(["--fault", fault, "--seconds", &seconds, "--seed", "7", "--out", &out]);
    if !recipe.is_empty() {
        words.extend(["--recipe", recipe]);
    }
    let passes_on = recipe == "queue" || kind == Kind::Redlock;
    if passes_on && matches!(work, "lock" | "cancel") {
        // Several of each process in line, who pass the name on among themselves.
        words.extend(["--processes", "3", "--clients", "6", "--names", "1"]);
    }
    let run = lab(&words)?;
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    // Too short to see five of everything, so `unknown` is expected: what was seen is counted here.
    if !matches!(run.status.code(), Some(0 | 2)) {
        return Err(format!("{:?}\n{text}\n{said}", run.status));
    }
    // What wanders as a ticket goes to another process.
    let passes_on = kind == Kind::Redlock && fault != "runtime-end" && work != "tickets";
    let passed_on = passes_on.then_some(("passed on", 20));
    let enough = [("hand-overs", 60)].into_iter().chain(passed_on);
    let enough = enough.chain(fault.split(',').map(|kind| (kind, 1)));
    for (title, least) in enough {
        let seen = counted(&text, title).unwrap_or(0);
        if seen < least {
            return Err(format!("unknown: only {seen} {title} in\n{text}"));
        }
    }
    if text.contains("contended asks") {
        return Err(format!("unknown: nobody was in anyone's way in\n{text}"));
    }
    Ok(())
}
