//! What a terminal shows.

use crate::support::{World, stdout};
use crate::terminal::Session;

const BOLD: &str = "\u{1b}[1m";

/// What `script` prints on a terminal of this width.
fn on_terminal(world: &World, columns: u16, script: &str) -> String {
    let mut session = Session::with_columns(world, columns, &format!("{script}; echo the-end"));
    session.shows("the-end");
    session.running.wait();
    session.screen().replace("\r\n", "\n").replace("the-end\n", "")
}

fn without_colours(text: &str) -> String {
    let mut plain = text.to_owned();
    for code in ["\u{1b}[0m", BOLD, "\u{1b}[31m"] {
        plain = plain.replace(code, "");
    }
    assert!(!plain.contains('\u{1b}'), "{text:?}");
    plain
}

#[test]
fn a_list_fits_the_terminal() {
    let world = World::new();
    let name = "jobs/a-rather-long-name-of-a-job";
    let _holder = world.holder(&["--note", "a note that is as long as notes are"], name);
    for columns in [40, 60, 80, 120] {
        let list = without_colours(&on_terminal(&world, columns, "\"$0\" ls"));
        let lines: Vec<_> = list.lines().collect();
        assert_eq!(lines.len(), 2, "{columns}: {list}");
        assert!(
            lines.iter().all(|line| line.chars().count() <= columns.into()),
            "{columns}: {list}"
        );
        assert!(lines[0].starts_with("NAME") && lines[0].contains("WAITING"), "{columns}: {list}");
        assert!(lines[1].starts_with("jobs/a-rath"), "{columns}: {list}");
        assert_eq!(lines[0].contains("TOKEN"), columns >= 120, "{columns}: {list}");
    }
    let wide = without_colours(&on_terminal(&world, 40, "\"$0\" ls --wide"));
    assert!(wide.contains(name) && wide.contains("as long as notes are"), "{wide}");
    // Where nobody looks, nothing is cut and nothing is coloured.
    let piped = on_terminal(&world, 40, "\"$0\" ls | cat");
    assert!(
        piped.contains(name) && piped.contains("TOKEN") && !piped.contains('\u{1b}'),
        "{piped}"
    );
    let show = without_colours(&on_terminal(&world, 60, &format!("\"$0\" show {name}")));
    assert!(show.lines().all(|line| line.chars().count() <= 60), "{show}");
    assert!(show.contains(&world.token(name)), "the token is never left out: {show}");
}

#[test]
fn colours_are_for_terminals_and_those_who_ask() {
    let world = World::new();
    let _holder = world.holder(&[], "x");
    let is_bold = |script: &str| on_terminal(&world, 80, script).contains(BOLD);
    assert!(is_bold("\"$0\" ls"));
    assert!(!is_bold("NO_COLOR=1 \"$0\" ls"));
    assert!(!is_bold("\"$0\" --color never ls"));
    assert!(!is_bold("TERM=dumb \"$0\" ls"));
    assert!(is_bold("NO_COLOR=1 \"$0\" ls --color always | cat"));
    assert!(stdout(&world.output(&["ls", "--color", "always"])).contains(BOLD));
    assert!(!stdout(&world.output(&["ls"])).contains('\u{1b}'));
}

#[test]
fn chinese_names_line_up() {
    let world = World::new();
    let _holder = world.holder(&[], "订单/对账 夜间,b名");
    let list = stdout(&world.output(&["ls"]));
    let lines: Vec<_> = list.lines().collect();
    // In columns of the screen: each of these characters takes two.
    let column = |line: &str, text: &str| {
        let before = &line[..line.find(text).unwrap()];
        before.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum::<usize>()
    };
    let holder = lines[0].find("HOLDER").unwrap();
    let who = lines[1].split_whitespace().find(|word| word.contains('@')).unwrap();
    assert_eq!(lines.len(), 3, "{list}");
    for line in &lines[1..] {
        assert_eq!(column(line, who), holder, "{list}");
    }
}
