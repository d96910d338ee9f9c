//! One name is one lock, whatever characters it contains.

use super::{Chosen, cases};
use crate::case::Case;
use crate::stage::{LONG, PATIENT, Stage};
use crate::verdict::{Outcome, ensure};
use lockkeeper::{ErrorKind, Name};
use std::sync::Arc;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    let mut cases = cases!("names":
        no_two_of_them_are_one,
        bad_ones_are_refused,
    );
    if chosen.inspects {
        cases.extend(cases!("names":
            they_come_back_as_they_were,
            a_prefix_is_no_pattern,
            notes_come_back_as_they_were,
        ));
    }
    cases
}

/// Name endings that some encoding, collation, pattern or quoting would confuse.
const NASTY: &[&str] = &[
    "a",
    "A",
    " a",
    "a ",
    "a  b",
    "a b",
    "a/b",
    "a//b",
    "/",
    "//",
    ".",
    "..",
    "a/../b",
    "%",
    "%%",
    "%2F",
    "%61",
    "{x}",
    "{}",
    "[x]",
    "*",
    "?",
    "a_c",
    "abc",
    "a%c",
    "'",
    "''",
    "\"",
    "`",
    "--",
    "'; DROP TABLE claim; --",
    "\\",
    "\\\\",
    "\\0",
    "$1",
    ":name",
    "#",
    "&",
    "=",
    "0",
    "00",
    "1e1",
    "10",
    "NULL",
    "null",
    "true",
    "ü",
    "u\u{308}",
    "ß",
    "ss",
    "SS",
    "İ",
    "i\u{307}",
    "ı",
    "Å",
    "\u{212b}",
    "日本語",
    "🔒",
    "🔒\u{fe0f}",
    "\u{202e}x",
    "x\u{200b}",
    "\u{feff}",
    "\u{a0}",
    "\u{fffd}",
    "\u{10ffff}",
    "-",
    "_",
    "~",
    "lock",
    "lock:1",
    "a\u{301}",
    "á",
];

/// Every nasty name of this case, including the longest possible one.
pub(super) fn nasty(stage: &Stage) -> Vec<String> {
    let mut names: Vec<String> = NASTY.iter().map(|tail| stage.name(tail)).collect();
    let room = Name::MAX_BYTES - stage.prefix().len();
    names.push(stage.name(&"x".repeat(room)));
    names.push(stage.name(&format!("{}y", "x".repeat(room - 1))));
    names.push(stage.name(&"é".repeat(room / 2)));
    names.push(stage.name(&"🔒".repeat(room / 4)));
    names
}

async fn no_two_of_them_are_one(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let mut guards = Vec::new();
    for name in nasty(&stage) {
        let guard = one.lock(&name).ttl(LONG).try_acquire().await?;
        ensure!(guard.is_some(), "{name:?} is taken by another name");
        guards.extend(guard);
    }
    for name in nasty(&stage) {
        ensure!(two.lock(&name).try_acquire().await?.is_none(), "{name:?} is not one lock");
    }
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

async fn they_come_back_as_they_were(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let mut names = nasty(&stage);
    let mut guards = Vec::new();
    for name in &names {
        guards.push(one.lock(name).ttl(LONG).acquire_within(PATIENT).await?);
    }
    let listed: Vec<String> =
        two.list(stage.prefix()).await?.into_iter().map(|view| view.name.to_string()).collect();
    names.sort();
    ensure!(listed == names, "listed {listed:?}, where {names:?} are held");
    for (name, guard) in names.iter().zip(&guards) {
        let view = two.show(name).await?;
        ensure!(view.name.as_str() == name && view.holders.len() == 1, "{name:?}: {view:?}");
        let view = two.show(guard.name().as_str()).await?;
        ensure!(view.holders[0].owner == *guard.owner(), "another holds {name:?}: {view:?}");
    }
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

async fn a_prefix_is_no_pattern(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let mut guards = Vec::new();
    for tail in ["p%x", "pyx", "p_x", "P%x", "p*x", "p[y]x", "p\\x", "pü", "pz"] {
        let lock = keeper.lock(stage.name(tail)).ttl(LONG);
        guards.push(lock.acquire_within(PATIENT).await?);
    }
    for start in ["p%", "p_", "P", "p*", "p[y]", "p\\", "pü", "py", "p", "q", ""] {
        let prefix = format!("{}{start}", stage.prefix());
        let listed = keeper.list(&prefix).await?;
        let expected = guards.iter().filter(|g| g.name().as_str().starts_with(&prefix)).count();
        let right = listed.iter().all(|view| view.name.as_str().starts_with(&prefix));
        ensure!(right && listed.len() == expected, "{start:?} lists {listed:?}");
    }
    Ok(())
}

async fn notes_come_back_as_they_were(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("noted");
    for note in ["", "plain", "'quoted' \"twice\"", "two\nlines", "🔒 \u{202e}", &"n".repeat(1000)]
    {
        let guard = one.lock(&name).ttl(LONG).note(note).acquire().await?;
        let view = two.show(&name).await?;
        ensure!(view.holders[0].note == note, "{note:?} came back as {:?}", view.holders[0].note);
        guard.release().await?;
    }
    Ok(())
}

async fn bad_ones_are_refused(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let long = "x".repeat(301);
    let just_too_long = "x".repeat(Name::MAX_BYTES + 1);
    for name in ["", &long, &just_too_long, "a\0b", "a\nb", "\r", "\t", "\u{7f}", "\u{85}"] {
        let kinds = [
            keeper.lock(name).acquire().await.err().map(|error| error.kind()),
            keeper.rw_lock(name).read().try_acquire().await.err().map(|error| error.kind()),
            keeper.multi(["ok", name]).try_acquire().await.err().map(|error| error.kind()),
            keeper.election(name).try_campaign().await.err().map(|error| error.kind()),
        ];
        for kind in kinds.iter().flatten() {
            let refusal = [ErrorKind::InvalidName, ErrorKind::Unsupported].contains(kind);
            ensure!(refusal, "{name:?} gave {kind:?}");
        }
        ensure!(kinds[0] == Some(ErrorKind::InvalidName), "{name:?} gave {:?}", kinds[0]);
        ensure!(kinds.iter().all(Option::is_some), "{name:?} was accepted: {kinds:?}");
    }
    Ok(())
}
