//! One command of a page, with what it is said to print.

use lockkeeper_docs::markdown::Block;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Where it stands in the page.
    pub(crate) line: usize,
    pub(crate) command: String,
    /// The lines below it; none where nothing is said.
    pub(crate) expected: Vec<String>,
}

/// The commands of a block, those that readers do not see first.
pub(crate) fn commands(block: &Block) -> Vec<Shown> {
    let hidden = block.setup.iter().map(|command| Shown {
        line: block.line,
        command: command.clone(),
        expected: Vec::new(),
    });
    let mut found: Vec<Shown> = hidden.collect();
    if block.language == "sh" {
        let command = format!("( set -eu\n{}\n)", block.text);
        found.push(Shown { line: block.line, command, expected: Vec::new() });
        return found;
    }
    let first = found.len();
    for (line, text) in (block.line + 1..).zip(block.text.lines()) {
        let goes_on = found[first..]
            .last()
            .is_some_and(|last| last.expected.is_empty() && last.command.ends_with('\\'));
        if let Some(command) = text.strip_prefix("$ ") {
            found.push(Shown { line, command: command.to_owned(), expected: Vec::new() });
        } else if let Some(last) = found[first..].last_mut() {
            match goes_on {
                true => last.command.push_str(&format!("\n{text}")),
                false => last.expected.push(text.to_owned()),
            }
        } else {
            // Nothing that was not asked for is printed: the comparison will say so.
            found.push(Shown { line, command: ":".to_owned(), expected: vec![text.to_owned()] });
        }
    }
    found
}
