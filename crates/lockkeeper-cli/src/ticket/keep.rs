//! `keep` and `unlock`: once for each ticket.

use super::arguments::{KeepArguments, UnlockArguments};
use super::{connect, read, refusal};
use crate::exit::{self, Failure};
use crate::{json, output, text};
use lockkeeper::{ErrorKind, Keeper, Result as Outcome, Ticket};
use serde::Serialize;

pub(crate) async fn keep(asked: &KeepArguments) -> Result<u8, Failure> {
    let tickets = read::tickets(&asked.tickets)?;
    let keeper = connect(&asked.store.url()?).await?;
    let mut answers = Answers::new(&keeper, asked.json);
    for ticket in tickets {
        let ticket = match asked.span {
            Some(span) => ticket.with_ttl(span),
            None => ticket,
        };
        let valid = answers.judge(&ticket, keeper.keep(&ticket).await)?;
        let line = valid.map(|valid| format!("is valid for {}", text::span(valid)));
        answers.give(&ticket, line, json::Kept::new(&ticket, valid))?;
    }
    answers.finish()
}

pub(crate) async fn unlock(asked: &UnlockArguments) -> Result<u8, Failure> {
    let tickets = read::tickets(&asked.tickets)?;
    let keeper = connect(&asked.store.url()?).await?;
    let mut answers = Answers::new(&keeper, asked.json);
    for ticket in tickets {
        let done = answers.judge(&ticket, keeper.give_back(&ticket).await)?.is_some();
        let line = done.then(|| "is given back".to_owned());
        answers.give(
            &ticket,
            line,
            json::Unlocked { name: ticket.name.as_str(), unlocked: done },
        )?;
    }
    answers.finish()
}

/// What became of each ticket: a line each, or an array at the end.
struct Answers<'a> {
    keeper: &'a Keeper,
    /// The parts of the array, where one is asked for.
    parts: Option<Vec<String>>,
    code: u8,
}

impl<'a> Answers<'a> {
    fn new(keeper: &'a Keeper, json: bool) -> Self {
        Self { keeper, parts: json.then(Vec::new), code: exit::FINE }
    }

    /// `None` for a ticket that is no longer good, of which it tells. The others are tried all the same.
    ///
    /// # Errors
    /// Whatever would be in the way of the others, too. Their array is printed as far as it came.
    fn judge<T>(&mut self, ticket: &Ticket, outcome: Outcome<T>) -> Result<Option<T>, Failure> {
        let error = match outcome {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error,
        };
        let is_lost = error.kind() == ErrorKind::Lost;
        let failure = refusal(error, ticket, self.keeper);
        if !is_lost {
            self.print_parts()?;
            return Err(failure);
        }
        output::say(&failure.message);
        self.code = failure.code;
        Ok(None)
    }

    fn give(
        &mut self,
        ticket: &Ticket,
        line: Option<String>,
        part: impl Serialize,
    ) -> Result<(), Failure> {
        match (&mut self.parts, line) {
            (Some(parts), _) => parts.push(json::line(&part).trim_end().to_owned()),
            (None, Some(line)) => output::print(format!("{:?} {line}\n", ticket.name))?,
            (None, None) => {}
        }
        Ok(())
    }

    fn print_parts(&mut self) -> Result<(), Failure> {
        match self.parts.take() {
            Some(parts) => output::print(format!("[{}]\n", parts.join(","))),
            None => Ok(()),
        }
    }

    fn finish(mut self) -> Result<u8, Failure> {
        self.print_parts()?;
        Ok(self.code)
    }
}
