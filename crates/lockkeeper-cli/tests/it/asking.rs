//! `break` asks a person who sits at the terminal.

use crate::support::{World, code, eventually, stderr};
use crate::terminal::Session;

const SCRIPT: &str = "\"$0\" break x; echo code-$?";

#[test]
fn the_holder_is_shown_and_the_lock_is_broken_after_a_yes() {
    let world = World::new();
    let holder = world.holder(&["--note", "nightly"], "x");
    let mut session = Session::start(&world, SCRIPT);
    session.shows("why?");
    let screen = session.screen();
    assert!(screen.contains("held by") && screen.contains("nightly"), "{screen}");
    session.type_in("host is gone\n");
    session.shows("Type yes");
    session.type_in("yes\n");
    session.shows("code-0");
    session.running.wait();
    let output = holder.finish();
    assert_eq!(code(&output), 79);
    assert!(stderr(&output).contains("host is gone"), "{output:?}");
}

#[test]
fn anything_but_yes_leaves_it_alone() {
    let world = World::new();
    let _holder = world.holder(&[], "x");
    let token = world.token("x");
    for (script, answers) in [
        (SCRIPT, &[("why?", "test\n"), ("Type yes", "y\n")][..]),
        (SCRIPT, &[("why?", "\n")]),
        (SCRIPT, &[("why?", "test\n"), ("Type yes", "\u{4}")]),
        ("\"$0\" break x --reason test; echo code-$?", &[("Type yes", "no\n")]),
    ] {
        let mut session = Session::start(&world, script);
        for (question, answer) in answers {
            session.shows(question);
            session.type_in(answer);
        }
        session.shows("nothing was done");
        session.shows("code-1");
        session.running.wait();
        assert_eq!(world.token("x"), token, "{answers:?}");
    }
}

#[test]
fn one_of_several_holders_is_chosen() {
    let world = World::new();
    let _first = world.holder(&["--slots", "2", "--note", "first"], "x");
    // The second runs before anybody is asked, and until the end.
    let script = "\"$0\" run --slots 2 --note second x -- sleep 600 & second=$!; \
                  until \"$0\" show x | grep -q second; do sleep 0.1; done; \
                  \"$0\" break x --reason test; read line; kill $second; wait";
    let mut session = Session::start(&world, script);
    session.shows("which of them, 1 to 2?");
    session.type_in("1\n");
    session.shows("Type yes");
    assert!(session.screen().contains("'first'"), "{}", session.screen());
    session.type_in("yes\n");
    session.shows("was taken from the holder");
    eventually("the second is left alone", || {
        let holders = world.show("x")["holders"].clone();
        holders.as_array().unwrap().len() == 1 && holders[0]["note"] == "second"
    });
    session.type_in("\n");
    session.running.wait();
}

#[test]
fn nothing_to_break_and_nobody_to_ask_are_said() {
    let world = World::new();
    let mut session = Session::start(&world, SCRIPT);
    session.shows("\"x\" is free");
    session.shows("code-1");
    session.running.wait();
    let _holder = world.holder(&[], "x");
    let output = world.output(&["break", "x", "--reason", "test"]);
    assert_eq!(code(&output), 64);
    assert!(stderr(&output).contains("no terminal"), "{output:?}");
}
