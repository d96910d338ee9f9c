//! Tickets, from wherever they are.

use super::arguments::TicketArguments;
use crate::exit::Failure;
use lockkeeper::Ticket;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// More than anybody's tickets: who gives a device or a log by mistake is told so soon.
const LONGEST: u64 = 16 << 20;
const STANDARD_INPUT: &str = "-";
/// How every ticket begins.
const TICKET: &str = "lk1:";

/// Those that are asked for, each once and at least one.
pub(crate) fn tickets(asked: &TicketArguments) -> Result<Vec<Ticket>, Failure> {
    from(&asked.tickets, asked.ticket_file.as_deref())
}

/// Those in `words`, then those in `file`.
pub(crate) fn from(words: &[String], file: Option<&Path>) -> Result<Vec<Ticket>, Failure> {
    let mut tickets = Vec::new();
    for word in words {
        match word.as_str() {
            STANDARD_INPUT => add_lines(&mut tickets, &standard_input()?, "standard input")?,
            word => add(&mut tickets, word.parse().map_err(|error| refused(word, error))?),
        }
    }
    match file {
        Some(path) if path == Path::new(STANDARD_INPUT) => {
            add_lines(&mut tickets, &standard_input()?, "standard input")?;
        }
        Some(path) => {
            let place = path.display().to_string();
            let text =
                File::open(path).and_then(read).map_err(|error| unreadable(&place, &error))?;
            add_lines(&mut tickets, &text, &place)?;
        }
        None => {}
    }
    Ok(tickets)
}

/// `unlock NAME` is an obvious thing to try.
fn refused(word: &str, error: lockkeeper::Error) -> Failure {
    let Failure { code, message } = error.into();
    let message = match word.starts_with(TICKET) {
        true => message,
        false => format!(
            "{message}. What a name is locked by can be seen with `lockkeeper show NAME`; who has no \
             ticket can only take the lock from its holder, with `lockkeeper break NAME`"
        ),
    };
    Failure { code, message }
}

fn standard_input() -> Result<String, Failure> {
    read(std::io::stdin().lock()).map_err(|error| unreadable("standard input", &error))
}

fn read(from: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    from.take(LONGEST).read_to_string(&mut text)?;
    Ok(text)
}

fn unreadable(place: &str, error: &std::io::Error) -> Failure {
    Failure::usage(format!("cannot read the tickets in {place}: {error}"))
}

/// One a line; empty lines are left out.
fn add_lines(tickets: &mut Vec<Ticket>, text: &str, place: &str) -> Result<(), Failure> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let mut none = true;
    for (number, line) in lines {
        let wrong = |error| Failure::usage(format!("line {number} of {place}: {error}"));
        add(tickets, line.parse().map_err(|error: lockkeeper::Error| wrong(error))?);
        none = false;
    }
    if none {
        return Err(Failure::usage(format!(
            "there is no ticket in {place}: did the `lockkeeper lock` that should have printed one fail?"
        )));
    }
    Ok(())
}

fn add(tickets: &mut Vec<Ticket>, ticket: Ticket) {
    let is_known = |known: &Ticket| known.id == ticket.id && known.name == ticket.name;
    if !tickets.iter().any(is_known) {
        tickets.push(ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> String {
        let name = lockkeeper::Name::new("orders/42").unwrap();
        let id = "00112233445566778899aabbccddeeff".parse().unwrap();
        let ttl = std::time::Duration::from_secs(30);
        Ticket::new(name, lockkeeper::Mode::Exclusive, id, ttl).to_string()
    }

    #[test]
    fn each_is_taken_once_and_blank_lines_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tickets");
        let one = one();
        std::fs::write(&file, format!("\n {one}\r\n\n{one}\n")).unwrap();
        let found = from(std::slice::from_ref(&one), Some(&file)).unwrap();
        assert_eq!(found, [one.parse().unwrap()]);
    }

    #[test]
    fn what_is_no_ticket_is_said_with_its_place_and_not_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tickets");
        let one = one();
        for (text, hint) in [
            (format!("{one}\n{}\n", one.replace("42", "43")), "line 2 of "),
            ("\n\n".to_owned(), "did the `lockkeeper lock`"),
            (String::new(), "there is no ticket"),
        ] {
            std::fs::write(&file, text).unwrap();
            let failure = from(&[], Some(&file)).unwrap_err();
            assert_eq!(failure.code, 64);
            assert!(failure.message.contains(hint), "{}", failure.message);
            assert!(!failure.message.contains("lk1:x"), "{}", failure.message);
        }
        let failure = from(&[], Some(&dir.path().join("none"))).unwrap_err();
        assert!(failure.code == 64 && failure.message.contains("none"), "{}", failure.message);
        assert_eq!(from(&["deploy".into()], None).unwrap_err().code, 64);
    }
}
