//! A command that talks to a person.

use crate::support::{Running, World, eventually, is_ignored_here};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::Signal;
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

/// A terminal with `script` running on it, in a session of its own.
pub(crate) struct Session {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    pub(crate) running: Running,
}

impl Session {
    pub(crate) fn start(world: &World, script: &str) -> Self {
        Self::sized(world, script, (80, 24))
    }

    pub(crate) fn with_columns(world: &World, columns: u16, script: &str) -> Self {
        Self::sized(world, script, (columns, 24))
    }

    /// With so many columns and lines.
    pub(crate) fn sized(world: &World, script: &str, (ws_col, ws_row): (u16, u16)) -> Self {
        let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let keyboard = File::from(pty.master);
        let mut display = keyboard.try_clone().unwrap();
        let device = File::from(pty.slave);
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", "sh", "-c", script, env!("CARGO_BIN_EXE_lockkeeper")]);
        command.env("LOCKKEEPER_STORE", world.store()).env_remove("LOCKKEEPER_OWNER");
        command.env("XDG_CONFIG_HOME", "/nonexistent").env("TERM", "xterm").env_remove("NO_COLOR");
        command.stdin(Stdio::from(device.try_clone().unwrap()));
        command.stdout(Stdio::from(device.try_clone().unwrap())).stderr(Stdio::from(device));
        let running = Running::start(&mut command);
        // It keeps the device open, and with it the terminal.
        drop(command);
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(count @ 1..) = display.read(&mut bytes) {
                *shown.lock().unwrap() += &String::from_utf8_lossy(&bytes[..count]);
            }
        });
        Self { keyboard, screen, running }
    }

    #[track_caller]
    pub(crate) fn shows(&self, text: &str) {
        eventually(&format!("the screen shows {text:?}"), || {
            self.screen.lock().unwrap().contains(text)
        });
    }

    /// What was printed so far.
    pub(crate) fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    pub(crate) fn type_in(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }
}

#[test]
fn the_command_reads_from_the_terminal_and_it_is_ours_again_afterwards() {
    let world = World::new();
    let mut session = Session::start(
        &world,
        "\"$0\" run x -- sh -c 'echo ready; read line; echo got-$line'; \
         echo again; read line; echo then-$line",
    );
    session.shows("ready");
    session.type_in("one\n");
    session.shows("got-one");
    session.shows("again");
    session.type_in("two\n");
    session.shows("then-two");
    session.running.wait();
}

#[test]
fn the_command_is_in_the_foreground_from_the_start_unless_in_a_pipeline() {
    let world = World::new();
    // The fifth and the eighth: its own process group, and that of the foreground.
    let ask = "set -- $(cat /proc/$$/stat); test $5 = $8 && echo front || echo behind";
    let script = format!(
        "echo alone; \"$0\" run x -- sh -c '{ask}'; \"$0\" run x -- sh -c '{ask}' | sed s/^/piped-/"
    );
    let mut session = Session::start(&world, &script);
    session.shows("alone\r\nfront\r\n");
    session.shows("piped-behind");
    session.running.wait();
}

#[test]
fn control_c_ends_the_command() {
    if is_ignored_here(Signal::SIGINT) {
        return;
    }
    let world = World::new();
    let script = "trap : INT; \"$0\" run x -- sh -c 'echo ready; exec sleep 600'; echo code-$?";
    let mut session = Session::start(&world, script);
    session.shows("ready");
    session.type_in("\u{3}");
    session.shows("code-130");
    session.running.wait();
}

#[test]
fn control_z_does_not_suspend_a_command_under_a_lock() {
    let world = World::new();
    let script = "\"$0\" run x -- sh -c 'echo ready; read line; echo got-$line'; echo code-$?";
    let mut session = Session::start(&world, script);
    session.shows("ready");
    session.type_in("\u{1a}");
    session.shows("cannot be suspended");
    session.type_in("on\n");
    session.shows("got-on");
    session.shows("code-0");
    session.running.wait();
}

#[test]
fn in_a_pipeline_the_command_gets_the_terminal_when_it_asks() {
    let world = World::new();
    let script = "\"$0\" run x -- sh -c 'echo ready; read line </dev/tty; echo got-$line' | cat; \
                  read line; echo then-$line";
    let mut session = Session::start(&world, script);
    session.shows("ready");
    session.type_in("one\n");
    session.shows("got-one");
    session.type_in("two\n");
    session.shows("then-two");
    session.running.wait();
}
