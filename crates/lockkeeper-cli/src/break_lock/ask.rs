//! Shows a person who holds the lock, and asks whether to break it.

use crate::exit::{self, Failure};
use crate::globals::Manner;
use crate::inspect::portrait;
use crate::table::Look;
use crate::text::visible;
use lockkeeper::backend::HolderView;
use lockkeeper::{FencingToken, Keeper};
use std::io::{BufRead, IsTerminal, Write};

/// What the person decided.
pub(super) enum Answer {
    Break {
        token: FencingToken,
        reason: String,
    },
    No,
    /// There is nothing to break.
    Free,
}

/// Refuses to ask where nobody can answer, before anything is touched.
pub(super) fn refuse_without_person(name: &str) -> Result<(), Failure> {
    if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "nobody can be asked here, because there is no terminal: say whom to take {name:?} from with \
         --token, which `lockkeeper show` prints, and why with --reason"
    )))
}

/// Asks on stderr, so that stdout has nothing but the result.
pub(super) async fn ask(
    keeper: &Keeper,
    name: &str,
    reason: Option<&str>,
    manner: &Manner,
) -> Result<Answer, Failure> {
    let view = keeper.show(name).await?;
    if view.holders.is_empty() {
        return Ok(Answer::Free);
    }
    show(&portrait(&view, Look::of_stderr(manner)));
    let Some(holder) = choose(&view.holders)? else { return Ok(Answer::No) };
    let Some(token) = holder.token else {
        return Err(Failure::usage(format!(
            "{} holds {name:?} without a token, so it cannot be broken: end that program",
            visible(&holder.to_string())
        )));
    };
    let reason = match reason {
        Some(reason) => reason.to_owned(),
        None => read("why? The holder is told: ")?,
    };
    if reason.is_empty() {
        return Ok(Answer::No);
    }
    let who = visible(&holder.to_string());
    let sure = read(&format!(
        "take {name:?} from {who}? It may be at work for a moment longer. Type yes: "
    ))?;
    Ok(if sure == "yes" { Answer::Break { token, reason } } else { Answer::No })
}

/// One of several, by its number in the table.
fn choose(holders: &[HolderView]) -> Result<Option<&HolderView>, Failure> {
    if let [only] = holders {
        return Ok(Some(only));
    }
    let number = read(&format!("which of them, 1 to {}? ", holders.len()))?;
    let index = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    Ok(index.and_then(|index| holders.get(index)))
}

fn read(question: &str) -> Result<String, Failure> {
    show(question);
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Failure::new(exit::USAGE, format!("cannot read the answer: {error}")))?;
    if !answer.ends_with('\n') {
        // The end of the input instead of an answer: the next message begins on a line of its own.
        show("\n");
    }
    Ok(answer.trim().to_owned())
}

fn show(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
