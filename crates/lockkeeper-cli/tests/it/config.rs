//! The configuration file.

use crate::support::{World, code, lockkeeper, stderr, stdout};
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

impl World {
    /// Writes a file that only its owner can read.
    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.set_mode(name, 0o600);
        self.file(name)
    }

    fn set_mode(&self, name: &str, mode: u32) {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.path(name), mode).unwrap();
    }

    /// A configuration with two stores.
    fn two_stores(&self) -> String {
        let (one, two) = (self.file("one.db"), self.file("two.db"));
        let text = format!(
            "default = \"one\"\n[stores.one]\nurl = \"sqlite:{one}\"\n[stores.two]\nurl = \"sqlite:{two}\"\n"
        );
        self.write("config.toml", &text)
    }
}

fn output(words: &[&str]) -> Output {
    lockkeeper(words).output().unwrap()
}

#[test]
fn a_store_is_found_by_its_name() {
    let world = World::new();
    let config = world.two_stores();
    for (words, file) in [
        (&["--config", &config, "run", "x", "true"][..], "one.db"),
        (&["--config", &config, "--store", "two", "run", "x", "true"], "two.db"),
    ] {
        let _ = std::fs::remove_file(world.path(file));
        assert_eq!(code(&output(words)), 0, "{words:?}");
        assert!(world.path(file).exists(), "{words:?}");
    }
    let mut command = lockkeeper(&["ls"]);
    command.env("LOCKKEEPER_STORE", "two").env("LOCKKEEPER_CONFIG", &config);
    assert_eq!(code(&command.output().unwrap()), 0);
    let unknown = output(&["--config", &config, "--store", "three", "ls"]);
    assert_eq!(code(&unknown), 64);
    assert!(stderr(&unknown).contains("\"one\", \"two\""), "{unknown:?}");
    let missing = output(&["--config", &world.file("none.toml"), "run", "x", "true"]);
    assert!(code(&missing) == 64 && stderr(&missing).contains("none.toml"), "{missing:?}");
}

#[test]
fn the_file_is_found_where_users_keep_theirs() {
    let world = World::new();
    let config = world.two_stores();
    for folder in ["home/.config/lockkeeper", "xdg/lockkeeper"] {
        std::fs::create_dir_all(world.path(folder)).unwrap();
        std::fs::copy(&config, world.path(&format!("{folder}/config.toml"))).unwrap();
    }
    for (name, folder) in [("HOME", "home"), ("XDG_CONFIG_HOME", "xdg")] {
        let mut command = lockkeeper(&["--store", "three", "ls"]);
        command.env_remove("XDG_CONFIG_HOME").env("HOME", "/nonexistent");
        let output = command.env(name, world.file(folder)).output().unwrap();
        assert!(stderr(&output).contains(&world.file(folder)), "{output:?}");
    }
}

#[test]
fn the_command_finds_the_store_again_by_its_name() {
    let world = World::new();
    let config = world.two_stores();
    let script = "echo $LOCKKEEPER_STORE; cd /; \"$0\" show x --json";
    let program = env!("CARGO_BIN_EXE_lockkeeper");
    let mut command =
        lockkeeper(&["--config", "config.toml", "run", "x", "--", "sh", "-c", script, program]);
    let output = command.current_dir(world.path("")).output().unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
    assert!(stdout(&output).starts_with("one\n{"), "{config}: {output:?}");
}

#[test]
fn a_file_that_others_may_write_is_refused() {
    let world = World::new();
    let config = world.two_stores();
    for mode in [0o602, 0o620, 0o666] {
        world.set_mode("config.toml", mode);
        let output = output(&["--config", &config, "run", "x", "true"]);
        assert_eq!(code(&output), 77, "{mode:o}: {output:?}");
        assert!(stderr(&output).contains("chmod go-w"), "{output:?}");
    }
    world.set_mode("config.toml", 0o644);
    assert_eq!(code(&output(&["--config", &config, "run", "x", "true"])), 0);
}

#[test]
fn the_command_can_be_kept_from_others_for_every_run() {
    let world = World::new();
    let config = world.write("config.toml", "show_command = false\n");
    let program = env!("CARGO_BIN_EXE_lockkeeper");
    let words = ["--config", &config, "run", "x", program, "show", "x", "--json"];
    let output = world.output(&words);
    assert!(stdout(&output).contains("\"note\":\"\""), "{output:?}");
}

#[test]
fn a_password_comes_from_a_file_or_a_command_and_is_never_shown() {
    let world = World::new();
    let file = world.write("password", "hunter2\n");
    for (source, wanted, hint) in [
        (format!("password_file = {file:?}"), 69, "127.0.0.1:1"),
        ("password_command = [\"echo\", \"hunter2\"]".into(), 69, "127.0.0.1:1"),
        ("password_command = [\"false\"]".into(), 77, "password_command"),
        ("password_command = [\"/no/such\"]".into(), 77, "/no/such"),
        (format!("password_file = {:?}", world.file("none")), 77, "none"),
        ("password_comand = [\"echo\", \"hunter2\"]".into(), 64, "password_comand"),
        (format!("password_file = {file:?}\npassword_command = [\"true\"]"), 64, "not both"),
    ] {
        // Nothing listens there.
        let text = format!("[stores.prod]\nurl = \"redis://127.0.0.1:1\"\n{source}\n");
        let config = world.write("config.toml", &text);
        let output = output(&["--config", &config, "--store", "prod", "ls"]);
        assert_eq!(code(&output), wanted, "{source}: {output:?}");
        assert!(stderr(&output).contains(hint), "{source}: {output:?}");
        assert!(!stderr(&output).contains("hunter2"), "{output:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
    }
}

#[test]
fn a_password_file_that_others_may_read_is_warned_of() {
    let world = World::new();
    let file = world.write("password", "hunter2\n");
    let text = format!("[stores.prod]\nurl = \"redis://127.0.0.1:1\"\npassword_file = {file:?}\n");
    let config = world.write("config.toml", &text);
    world.set_mode("password", 0o644);
    let words = ["--config", &config, "--store", "prod", "ls"];
    let warned = output(&words);
    assert!(stderr(&warned).contains("warning: others may read the password file"), "{warned:?}");
    let quiet = output(&[&words[..], &["-q"]].concat());
    assert_eq!(stderr(&quiet).lines().count(), 1, "{quiet:?}");
}
