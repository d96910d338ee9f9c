//! The two steps of a pipeline that `docs/command.md` shows are run as they stand there, and looked at closely.

use crate::support::{World, code, stdout};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// The scripts under a heading of the page, in order.
fn scripts(heading: &str) -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/command.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once(&format!("\n{heading}\n")).expect(heading);
    let section = section.split("\n## ").next().unwrap();
    let blocks = section.split("\n```sh\n").skip(1);
    blocks.map(|block| block.split("\n```").next().unwrap().to_owned()).collect()
}

/// Runs `script` as a step of a pipeline: in a shell of its own, with the same folder.
fn step(world: &World, script: &str) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_lockkeeper")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-eu", "-c", script]).current_dir(world.path(""));
    shell.env("PATH", path).env("LOCKKEEPER_STORE", world.store()).env("CI_PIPELINE_ID", "4711");
    shell.env_remove("LOCKKEEPER_OWNER").output().unwrap()
}

#[test]
fn two_steps_of_a_pipeline_share_a_lock() {
    let world = World::new();
    let scripts = scripts("## From one step to the next");
    let [lock, deploy] = &scripts[..] else { panic!("two steps, not {scripts:?}") };
    let program = world.path("deploy.sh");
    std::fs::write(&program, "#!/bin/sh\necho deployed with $LOCKKEEPER_TOKEN\nexit 5\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();

    let first = step(&world, lock);
    assert_eq!((code(&first), stdout(&first)), (0, String::new()), "{first:?}");
    let held = &world.show("deploy/web")["holders"][0];
    assert_eq!(held["identity"], "pipeline 4711");
    assert!(held["expires_ms"].as_u64().unwrap() > 25 * 60 * 1000, "{held}");
    let mode = std::fs::metadata(world.path("deploy.ticket")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only its owner can read it");

    let second = step(&world, deploy);
    assert_eq!(code(&second), 5, "{second:?}");
    assert_eq!(stdout(&second), format!("deployed with {}\n", held["token"]));
    assert_eq!(world.code(&["run", "-n", "deploy/web", "true"]), 0);
    assert_eq!(code(&step(&world, deploy)), 79, "the ticket was good once");
}
