//! `ls --watch`, on a terminal.

use crate::support::{World, code, eventually, is_ignored_here, stderr, stdout};
use crate::terminal::Session;
use nix::sys::signal::Signal;

const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";
const WATCH: &str =
    "stty -a > \"$1\"; \"$0\" ls --watch --every 100ms; echo code-$?; stty -a > \"$2\"";

/// A screen of this size that shows the locks of `world`.
fn watch(world: &World, size: (u16, u16)) -> Session {
    let (before, after) = (world.file("before"), world.file("after"));
    let script = WATCH.replace("$1", &before).replace("$2", &after);
    let session = Session::sized(world, &script, size);
    session.shows(ENTER);
    session
}

/// The terminal is as it was before.
#[track_caller]
fn given_back(world: &World, session: &Session) {
    eventually("the shell goes on", || !world.read("after").is_empty());
    assert_eq!(world.read("before"), world.read("after"));
    session.shows("code-");
    let printed = session.screen();
    let left = printed.rfind(LEAVE).expect("it leaves the other screen");
    assert!(printed[left..].contains("\u{1b}[?25h") || printed[..left].contains("\u{1b}[?25h"));
    assert!(printed[left..].contains("code-"), "{printed:?}");
}

#[test]
fn a_lock_is_shown_selected_looked_at_and_broken() {
    let world = World::new();
    let mut holder = world.holder(&[], "订单/夜间");
    let _waiter = world.start(&["run", "订单/夜间", "--", "sleep", "600"]);
    eventually("it waits", || world.waiters("订单/夜间") == 1);
    let _other = world.start(&["run", "jobs/1", "--", "sleep", "600"]);
    let mut session = watch(&world, (60, 15));
    session.shows("2 locks, 1 waiting");
    session.shows("订单/夜间");
    session.shows("q quit");
    session.type_in("s");
    session.shows("by most waiters");
    session.type_in("\r");
    session.shows("HELD BY");
    session.shows("PLACE");
    session.type_in("\u{1b}");
    let old = world.token("订单/夜间");
    session.type_in("b");
    session.shows("take from ");
    session.shows("reason: _");
    session.type_in("on fire\r");
    session.shows("was taken from the holder with token");
    assert_eq!(holder.wait().code(), Some(79));
    eventually("the next has it", || world.token("订单/夜间") != old);
    session.type_in("q");
    session.shows("code-0");
    given_back(&world, &session);
    session.running.wait();
}

#[test]
fn a_question_that_is_not_answered_breaks_nothing() {
    let world = World::new();
    let mut holder = world.holder(&[], "x");
    let mut session = watch(&world, (120, 20));
    session.shows("1 lock, 0 waiting");
    session.type_in("b");
    session.shows("reason: _");
    session.type_in("because");
    session.shows("reason: because_");
    session.type_in("\u{1b}");
    session.shows("was left as it is");
    assert!(holder.child().try_wait().unwrap().is_none());
    session.type_in("q");
    given_back(&world, &session);
    session.running.wait();
}

#[test]
fn many_locks_scroll() {
    let world = World::new();
    let names: Vec<_> = (0..1000).map(|at| format!("n{at:04}")).collect();
    let _holder = world.holder(&[], &names.join(","));
    let mut session = watch(&world, (80, 24));
    session.shows("1000 locks");
    session.shows("n0000");
    session.type_in("\u{1b}[F");
    session.shows("n0999");
    session.type_in("q");
    given_back(&world, &session);
    session.running.wait();
}

#[test]
fn control_c_and_a_signal_give_the_terminal_back() {
    if is_ignored_here(Signal::SIGINT) {
        return;
    }
    let world = World::new();
    let mut session = watch(&world, (80, 24));
    session.shows("no lock is held");
    session.type_in("\u{3}");
    session.shows("code-130");
    given_back(&world, &session);
    session.running.wait();

    let world = World::new();
    let mut session = watch(&world, (80, 24));
    session.shows("no lock is held");
    // The shell's own child.
    let own = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let number: i32 = entry.unwrap().file_name().to_str()?.parse().ok()?;
        let words = std::fs::read_to_string(format!("/proc/{number}/cmdline")).ok()?;
        let environment = std::fs::read_to_string(format!("/proc/{number}/environ")).ok()?;
        let is_ours =
            words.ends_with("ls\0--watch\0--every\x00100ms\0") && !words.starts_with("sh");
        (is_ours && environment.contains(&world.store())).then_some(number)
    });
    let own: Vec<_> = own.collect();
    assert_eq!(own.len(), 1, "{own:?}");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(own[0]), Signal::SIGTERM).unwrap();
    session.shows("code-143");
    given_back(&world, &session);
    session.running.wait();
}

#[test]
fn without_a_terminal_it_says_what_to_use_instead() {
    let world = World::new();
    let output = world.output(&["ls", "--watch"]);
    assert_eq!(code(&output), 64, "{output:?}");
    assert!(stdout(&output).is_empty(), "{output:?}");
    assert!(stderr(&output).contains("events -f") && stderr(&output).contains("ls --json"));
    for words in [
        &["ls", "--watch", "--json"][..],
        &["ls", "--every", "2s"],
        &["ls", "--watch", "--every", "x"],
    ] {
        assert_eq!(world.code(words), 64, "{words:?}");
    }
}
