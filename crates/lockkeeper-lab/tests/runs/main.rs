//! Short runs of the lab on every recipe with a server: claims exclude and fenced effects hold
//! while clients, the network and the server are broken.

use libtest_mimic::{Arguments, Failed, Trial};
use lockkeeper_lab::server::{Kind, cannot_hang, missing};
use std::process::{Command, Output};

/// A recipe, if there are several, and what the clients do.
const STORES: &[(Kind, &str, &str)] = &[
    (Kind::Redis, "queue", "lock"),
    (Kind::Redis, "queue", "rw"),
    (Kind::Redis, "queue", "permits"),
    (Kind::Redis, "queue", "cancel"),
    (Kind::Redis, "reentrant", "lock"),
    (Kind::Redis, "reentrant", "rw"),
    (Kind::Redis, "set-nx-px", "lock"),
    (Kind::ZooKeeper, "fair", "lock"),
    (Kind::ZooKeeper, "fair", "rw"),
    (Kind::ZooKeeper, "barging", "lock"),
    (Kind::ZooKeeper, "ephemeral", "lock"),
    (Kind::Etcd, "", "lock"),
    (Kind::Etcd, "", "rw"),
];

/// What is broken, two kinds at a time, and for how long.
const FAULTS: &[(&str, u32)] =
    &[("kill,pause", 9), ("partition,lost-reply", 9), ("server-kill,reset", 9)];

/// Faults of one store, or of several members: the members, and how often at least it is felt.
const OF_THEIR_OWN: &[(Kind, &str, &str, &str, u32)] = &[
    (Kind::Redis, "queue", "1", "runtime-end", 6),
    (Kind::ZooKeeper, "fair", "1", "runtime-end", 6),
    (Kind::Etcd, "", "1", "runtime-end", 6),
    (Kind::Redis, "queue", "1", "forged-message,server-kill", 12),
    (Kind::Redis, "queue", "3", "failover", 16),
    (Kind::Redis, "queue", "3", "stale-sentinel", 12),
    (Kind::Redis, "queue", "6", "server-pause", 10),
    (Kind::ZooKeeper, "fair", "3", "disk-hang,server-pause", 12),
    (Kind::Etcd, "", "3", "disk-hang,server-pause", 12),
];

fn main() {
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(5);
    let mut trials = Vec::new();
    for (kind, recipe, work) in STORES {
        // One pair of faults is enough of a trial for what mostly the same code does.
        let faults = match (*work, *recipe) {
            ("lock", "ephemeral") => &FAULTS[1..2],
            ("lock", "barging") => &FAULTS[2..],
            ("lock", _) => FAULTS,
            _ => &FAULTS[..1],
        };
        for (fault, seconds) in faults {
            let name = format!("{} {recipe} {work} {fault}", kind.word()).replace("  ", " ");
            let run = Asked { kind: *kind, recipe, work, members: "1", fault, seconds: *seconds };
            trials.push(run.trial(name));
        }
    }
    for (kind, recipe, members, fault, seconds) in OF_THEIR_OWN {
        let name = format!("{} of {members} {fault}", kind.word());
        let run = Asked { kind: *kind, recipe, work: "lock", members, fault, seconds: *seconds };
        trials.push(run.trial(name));
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
    if recipe == "queue" && matches!(work, "lock" | "cancel") {
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
    let enough = [("hand-overs", 60)].into_iter().chain(fault.split(',').map(|kind| (kind, 1)));
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
