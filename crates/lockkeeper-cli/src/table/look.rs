//! Where a table is printed.

use crate::globals::Manner;
use std::io::IsTerminal;
use terminal_size::{Height, Width};

/// How a table is printed: as it is, unless it is said otherwise.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Look {
    /// The room on the screen; `None` cuts nothing.
    pub(crate) width: Option<usize>,
    /// Whether there are colours.
    pub(crate) color: bool,
}

impl Look {
    /// As stdout needs it: what is no terminal gets all of it, as it does with `wide`.
    pub(crate) fn of_stdout(manner: &Manner, wide: bool) -> Self {
        let on_terminal = std::io::stdout().is_terminal();
        let size = terminal_size::terminal_size_of(std::io::stdout());
        Self::new(manner, on_terminal, size.filter(|_| !wide))
    }

    /// The same for stderr, where people are asked.
    pub(crate) fn of_stderr(manner: &Manner) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        Self::new(manner, on_terminal, terminal_size::terminal_size_of(std::io::stderr()))
    }

    fn new(manner: &Manner, on_terminal: bool, size: Option<(Width, Height)>) -> Self {
        let width = size.filter(|_| on_terminal).map(|(width, _)| usize::from(width.0));
        let width = width.filter(|width| *width > 0);
        Self { width, color: manner.is_colorful(on_terminal) }
    }
}
