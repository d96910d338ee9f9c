//! The terminal, while it is ours: its other screen, without echo. Given back in every case: at the end, by
//! a signal that can be caught, and when the program panics.

use super::draw::{Line, Style};
use crate::exit::{self, Failure};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, queue};
use std::io::{IsTerminal, Write, stdout};

/// Ours until this is dropped.
#[derive(Debug)]
pub(super) struct Screen(());

impl Screen {
    /// Whether there is somebody to watch.
    pub(super) fn is_there() -> bool {
        std::io::stdin().is_terminal() && stdout().is_terminal()
    }

    pub(super) fn take() -> Result<Self, Failure> {
        let refused = |error: std::io::Error| {
            Failure::new(exit::NO_OUTPUT, format!("cannot use the terminal: {error}"))
        };
        enable_raw_mode().map_err(refused)?;
        // From here on it is given back, also if the next step fails.
        let screen = Self(());
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // Else the message is on a screen that nobody will see.
            give_back();
            before(panic);
        }));
        execute!(stdout(), EnterAlternateScreen, cursor::Hide).map_err(refused)?;
        Ok(screen)
    }

    /// Columns and lines.
    pub(super) fn size(&self) -> (usize, usize) {
        let (columns, lines) = crossterm::terminal::size().unwrap_or((80, 24));
        // A terminal that does not know its size says zero.
        (if columns == 0 { 80 } else { columns.into() }, if lines == 0 { 24 } else { lines.into() })
    }

    /// Shows these lines from the top, and nothing else. In one write: half a screen is never seen.
    pub(super) fn show(&self, lines: &[Line]) -> std::io::Result<()> {
        let mut out = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            queue!(out, cursor::MoveTo(0, u16::try_from(at).unwrap_or(u16::MAX)))?;
            // Before the text: behind a line as wide as the terminal it would clear the last column.
            queue!(out, Clear(ClearType::UntilNewLine))?;
            match line.style {
                Style::Plain => {}
                Style::Bold => queue!(out, SetAttribute(Attribute::Bold))?,
                Style::Selected => queue!(out, SetAttribute(Attribute::Reverse))?,
                Style::Faint => queue!(out, SetAttribute(Attribute::Dim))?,
            }
            queue!(out, Print(&line.text), SetAttribute(Attribute::Reset))?;
        }
        let mut stdout = stdout().lock();
        stdout.write_all(&out)?;
        stdout.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Can be called twice. If the terminal is gone, there is nobody to give it back to.
fn give_back() {
    let _ = execute!(stdout(), cursor::Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}
