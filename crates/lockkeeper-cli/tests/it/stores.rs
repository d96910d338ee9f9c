//! Stores that do not work.

use crate::support::{World, code, lockkeeper, stderr, stdout};
use std::process::{Command, Output};

/// Both ways of using a store, each of which must fail with a plain word and without the command.
fn all_fail(store: &str, wanted: i32) -> Vec<Output> {
    let tries = [&["ls", "--store", store][..], &["run", "--store", store, "x", "echo", "ran"]];
    tries
        .into_iter()
        .map(|words| {
            let output = lockkeeper(words).output().unwrap();
            assert_eq!(code(&output), wanted, "{words:?}: {output:?}");
            assert!(stderr(&output).starts_with("lockkeeper: "), "{output:?}");
            assert!(!stderr(&output).contains("panicked"), "{output:?}");
            assert!(output.stdout.is_empty(), "{output:?}");
            output
        })
        .collect()
}

#[test]
fn a_path_through_a_file_is_not_a_store() {
    let world = World::new();
    std::fs::write(world.path("plain"), "text").unwrap();
    for output in all_fail(&format!("sqlite:{}/locks.db", world.file("plain")), 64) {
        assert!(stderr(&output).contains(&world.file("plain")), "{output:?}");
    }
}

#[test]
fn a_file_that_cannot_be_created_is_not_a_store() {
    all_fail("sqlite:/sys/locks.db", 77);
}

#[test]
fn a_directory_is_not_a_store() {
    let world = World::new();
    all_fail(&format!("sqlite:{}", world.path("").display()), 64);
}

#[test]
fn a_file_of_something_else_is_not_a_store_and_is_left_alone() {
    let world = World::new();
    let text = "this is not a database, and long enough to be seen as none. ".repeat(100);
    std::fs::write(world.path("locks.db"), &text).unwrap();
    all_fail(&world.store(), 69);
    assert_eq!(world.read("locks.db"), text);
}

#[test]
fn a_store_damaged_in_the_middle_is_an_error_and_no_lock() {
    let world = World::new();
    assert_eq!(world.code(&["run", "x", "true"]), 0);
    for left_over in ["locks.db-wal", "locks.db-shm"] {
        let _ = std::fs::remove_file(world.path(left_over));
    }
    let mut bytes = std::fs::read(world.path("locks.db")).unwrap();
    bytes[100..].fill(0xa5);
    std::fs::write(world.path("locks.db"), bytes).unwrap();
    all_fail(&world.store(), 69);
}

#[test]
fn a_home_that_is_not_there_is_an_error_and_is_not_made() {
    let world = World::new();
    let home = world.path("nonexistent");
    for words in [&["ls"][..], &["run", "x", "echo", "ran"]] {
        let mut command = lockkeeper(words);
        command.env("HOME", &home).env_remove("XDG_STATE_HOME");
        let output = command.output().unwrap();
        assert_eq!(code(&output), 64, "{output:?}");
        assert!(stderr(&output).contains(&world.file("nonexistent")), "{output:?}");
        assert!(stderr(&output).contains("sqlite:/path"), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        assert!(!home.exists());
    }
    // One that is there gets the folders that the file lies in.
    std::fs::create_dir(&home).unwrap();
    let mut command = lockkeeper(&["run", "x", "true"]);
    command.env("HOME", &home).env_remove("XDG_STATE_HOME");
    assert_eq!(code(&command.output().unwrap()), 0);
}

/// On a file system of its own, in a mount namespace that ends with the script.
#[test]
fn a_full_disk_is_an_error_that_says_so_and_passes_when_there_is_room() {
    let world = World::new();
    let script = r#"
        mount -t tmpfs -o size=256k none "$1" || exit 99
        export LOCKKEEPER_STORE="sqlite:$1/locks.db"
        "$0" run held -- sh -c '
            dd if=/dev/zero of="$2/filler" bs=1k 2>/dev/null
            # What is left of the last page holds a few commits more.
            count=0; code=0
            while [ $code = 0 ] && [ $count -lt 100 ]; do
                count=$((count + 1)); "$1" run "other/$count" -- true; code=$?
            done
            echo "full: $code"
            rm "$2/filler"
            "$1" run other -- echo ran; echo "room: $?"
        ' sh "$0" "$1"
        echo "held: $?"
        "$0" show held; echo "left: $?"
    "#;
    let root = nix::unistd::Uid::effective().is_root();
    let mut command = Command::new("unshare");
    command.args(if root { &["-m"][..] } else { &["-r", "-m"] });
    command.args(["sh", "-c", script, env!("CARGO_BIN_EXE_lockkeeper")]).arg(world.path(""));
    let output = command.env_remove("LOCKKEEPER_OWNER").output().unwrap();
    assert_ne!(code(&output), 99, "unknown: no file system could be mounted: {output:?}");
    let lines: Vec<_> = stdout(&output).lines().map(str::to_owned).collect();
    assert_eq!(lines, ["full: 69", "ran", "room: 0", "held: 0", "left: 1"], "{output:?}");
    assert!(stderr(&output).contains("is full: free some space"), "{output:?}");
}
