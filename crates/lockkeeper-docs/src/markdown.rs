//! The fenced blocks of a page, and the page without them.

/// One fenced block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The line of its opening fence, counted from one.
    pub line: usize,
    /// What it is: the first word of the info string, empty where there is none.
    pub language: String,
    /// The other words of the info string.
    pub flags: Vec<String>,
    /// What is between the fences.
    pub text: String,
    /// Commands in `<!-- setup: … -->` right above it.
    pub setup: Vec<String>,
}

impl Block {
    /// Whether the info string says `flag` after the language.
    #[must_use]
    pub fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|each| each == flag)
    }
}

/// The fenced blocks of `page`, in order.
///
/// # Errors
/// A block that is not closed.
pub fn blocks(page: &str) -> Result<Vec<Block>, String> {
    let mut found = Vec::new();
    let mut setup = Vec::new();
    let mut lines = (1..).zip(page.lines());
    while let Some((line, text)) = lines.next() {
        if let Some(command) = setup_of(text) {
            setup.push(command.to_owned());
            continue;
        }
        let Some(opening) = Fence::of(text) else {
            setup.clear();
            continue;
        };
        let mut words = opening.info.split([',', ' ']).filter(|word| !word.is_empty());
        let mut block = Block {
            line,
            language: words.next().unwrap_or_default().to_owned(),
            flags: words.map(str::to_owned).collect(),
            text: String::new(),
            setup: std::mem::take(&mut setup),
        };
        loop {
            let Some((_, text)) = lines.next() else {
                return Err(format!("line {line}: a block begins here and never ends"));
            };
            if opening.is_closed_by(text) {
                break;
            }
            block.text.push_str(text.strip_prefix(opening.indent).unwrap_or(text.trim_start()));
            block.text.push('\n');
        }
        found.push(block);
    }
    Ok(found)
}

/// The lines of `page` that are prose, with their numbers: no fenced blocks, no code in backticks.
pub fn prose(page: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut lines = (1..).zip(page.lines());
    while let Some((line, text)) = lines.next() {
        match Fence::of(text) {
            None => found.push((line, without_code(text))),
            Some(opening) => {
                while lines.next().is_some_and(|(_, text)| !opening.is_closed_by(text)) {}
            }
        }
    }
    found
}

fn setup_of(line: &str) -> Option<&str> {
    Some(line.trim().strip_prefix("<!-- setup:")?.strip_suffix("-->")?.trim())
}

struct Fence<'a> {
    indent: &'a str,
    ticks: usize,
    info: &'a str,
}

impl<'a> Fence<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let fence = line.trim_start();
        let info = fence.trim_start_matches('`');
        let ticks = fence.len() - info.len();
        // A line such as ```` ```code``` ```` is text.
        (ticks >= 3 && !info.contains('`')).then(|| Self {
            indent: &line[..line.len() - fence.len()],
            ticks,
            info: info.trim(),
        })
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.ticks && line.chars().all(|letter| letter == '`')
    }
}

/// A line without what is in backticks. A code span that goes on in the next line stays.
fn without_code(line: &str) -> String {
    let mut kept = String::new();
    let mut rest = line;
    while let Some(start) = rest.find('`') {
        let code = rest[start..].trim_start_matches('`');
        let ticks = rest.len() - start - code.len();
        let fence = "`".repeat(ticks);
        let Some(end) = code.find(&fence) else { break };
        kept.push_str(&rest[..start]);
        rest = &code[end + ticks..];
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
Text with `[no](link)`.
<!-- setup: touch a -->
```console,no-run
$ echo `x`
```
<!-- setup: lost, since text follows -->
More.
- in a list
  ```rust
  let x = 1;
    x
  ```
````text
```
````
";

    #[test]
    fn blocks_are_found_with_what_they_are() {
        let blocks = blocks(PAGE).unwrap();
        let [console, rust, text] = &blocks[..] else { panic!("{blocks:?}") };
        assert_eq!((console.line, console.language.as_str()), (3, "console"));
        assert!(console.is("no-run") && !rust.is("no-run"));
        assert_eq!(console.text, "$ echo `x`\n");
        assert_eq!(console.setup, ["touch a"]);
        assert_eq!(rust.text, "let x = 1;\n  x\n");
        assert!(rust.setup.is_empty());
        assert_eq!(text.text, "```\n");
        assert!(super::blocks("```rust\nx").is_err());
    }

    #[test]
    fn prose_has_neither_blocks_nor_code() {
        let prose = prose(PAGE);
        let lines: Vec<_> = prose.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 6, 7, 8]);
        assert_eq!(prose[0].1, "Text with .");
    }
}
