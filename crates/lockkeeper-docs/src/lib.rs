//! The Markdown pages of this repository, read for the tests that try what they show.
//!
//! Every fenced block says in its info string what it is, and that decides how it is tried:
//!
//! | block | what becomes of it |
//! |---|---|
//! | `rust` | compiled and run; with `fn main` or a `#[test]` of its own as a module, else as statements in which `keeper` and what `tests/docs/given.rs` has are known. `"sqlite:"` is a file of the test's own |
//! | `rust,no_run` | compiled |
//! | `console` | each line after `$ ` is run by one bash for the whole page, in an empty home; its exit code must be 0, and the lines below it, if there are any, must be what it printed |
//! | `sh` | run as one script, which must succeed |
//! | `console,no-run`, `sh,no-run` | not run, but counted and printed; what they name of this repository must exist |
//! | `text`, `toml`, `sql`, … | read by people only |
//!
//! In what a command printed, `…` stands for any text within a line (alone in a line: for any lines), and
//! `<word>` for one word. Runs of spaces count as one.
//! `<!-- setup: COMMAND -->` above a block is run before it and not shown to readers.
//! A URL of a server on `127.0.0.1` without a port stands for a server that the lab starts.

pub mod links;
pub mod markdown;
pub mod pages;
