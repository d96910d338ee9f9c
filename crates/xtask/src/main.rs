//! The developer's commands: `cargo xtask test` and its parts.

mod deb;
mod package;

use anyhow::{Context, Result, bail};
use std::process::Command;
use std::time::Instant;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test       everything that must hold: format, lints, docs, tests, examples, licences
             test --stories tells the stories in full size
  setup      install the servers that the tests use, if they are missing
  stories    the known failures of distributed locks, and their cures: stories F4 F6
  interop    locks of ours and of other libraries, against each other: interop etcd
  compare    every recipe and other libraries, measured on the same servers: compare redis
  picture    record a session of the command line, and draw the terminal of the README
  servers    start one of each server and print their URLs
  package    make the packages that are published, and compile what is in them
  deb        build a Debian package of the command, in target/debian
  bench      the figures of docs/figures.md, as ratios measured in one run
  table      print the capability table of docs/stores.md";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => test_with_servers(&[]),
        ["test", "--stories"] => test_with_servers(&[("LOCKKEEPER_LAB_STORIES", "all")]),
        [STEPS_ONLY] => test(),
        ["setup"] => cargo(&[LAB, &["setup"]].concat()),
        ["servers"] => cargo(&[LAB, &["servers"]].concat()),
        ["interop", ..] => {
            let words: Vec<_> = arguments.iter().map(String::as_str).collect();
            cargo(&[LAB, &words].concat())
        }
        ["stories", ..] => {
            let words: Vec<_> = arguments.iter().map(String::as_str).collect();
            verdict_of(&[LAB, &words].concat())
        }
        ["picture"] => {
            cargo(&["build", "--package", "lockkeeper-cli"])?;
            // Beside this program.
            let program = std::env::current_exe()?.with_file_name("lockkeeper");
            let program = program.to_str().context("this program has a strange path")?;
            cargo(&[LAB, &["screen", "--program", program]].concat())
        }
        // Figures of an unoptimised build would be of no use.
        ["compare", ..] => {
            let words: Vec<_> = arguments.iter().map(String::as_str).collect();
            cargo(&[&["run", "--release"], &LAB[1..], &words].concat())
        }
        ["package"] => package::check(),
        ["deb"] => deb::build(),
        ["bench"] => {
            cargo(&["bench", "--package", "lockkeeper", "--features", "full,metrics"])?;
            cargo(&["bench", "--package", "lockkeeper-lab"])
        }
        ["table"] => {
            cargo(&["run", "--quiet", "--package", "lockkeeper-cli", "--", "recipes", "--markdown"])
        }
        [] | ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => bail!("there is no such command\n\n{USAGE}"),
    }
}

/// The lab is run, not linked, so that this program builds quickly.
const LAB: &[&str] = &["run", "--quiet", "--package", "lockkeeper-lab", "--"];
/// The hidden verb with which `test` calls itself once the servers are running.
const STEPS_ONLY: &str = "test-with-the-servers-there";

fn test_with_servers(environment: &[(&str, &str)]) -> Result<()> {
    announce("servers");
    cargo(&[LAB, &["setup"]].concat())?;
    let itself = std::env::current_exe()?;
    let itself = itself.to_str().context("this program has a strange path")?;
    run(&[LAB, &["with-servers", "--", itself, STEPS_ONLY]].concat(), environment)
}

/// Runs the lab, and exits with its exit code, which is its verdict.
fn verdict_of(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let status = command.args(arguments).status().context("cannot run cargo")?;
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => std::process::exit(code),
        None => bail!("the lab was ended: {status}"),
    }
}

/// One check.
struct Step {
    what: &'static str,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

const fn step(what: &'static str, arguments: &'static [&'static str]) -> Step {
    Step { what, arguments, environment: &[] }
}

const STEPS: &[Step] = &[
    step("format", &["fmt", "--all", "--check"]),
    step("lints", &["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]),
    step(
        "the library where CLOCK_BOOTTIME is missing",
        &[
            "rustc",
            "--package",
            "lockkeeper",
            "--features",
            "full",
            "--lib",
            "--profile",
            "check",
            "--",
            "--cfg",
            "lockkeeper_portable",
            "--deny",
            "warnings",
        ],
    ),
    Step {
        what: "documentation",
        arguments: &["doc", "--workspace", "--no-deps", "--document-private-items"],
        environment: &[("RUSTDOCFLAGS", "--deny warnings")],
    },
    step("tests, documentation examples and the contract of every store", &["test", "--workspace"]),
    step(
        "the command without its default store",
        // Of the workspace, so that everything but the command itself is built already.
        &[
            "test",
            "--workspace",
            "--no-default-features",
            "--features",
            "lockkeeper-cli/redis",
            "--bin",
            "lockkeeper",
        ],
    ),
    step("tests without features", &["test", "--package", "lockkeeper", "--lib", "--test", "it"]),
    step(
        "locks of other libraries, on every store that they share",
        &["run", "--quiet", "--package", "lockkeeper-lab", "--", "interop"],
    ),
];

/// Each feature alone, and none.
const FEATURES: &[&str] = &[
    "",
    "etcd",
    "memcached",
    "metrics",
    "mysql",
    "postgres",
    "redis",
    "serde",
    "sqlite",
    "ulid",
    "uuid",
    "zookeeper",
];

/// The command with no store that needs a feature, and with a single one.
const COMMAND_FEATURES: &[&str] = &["", "redis"];

/// Without `--all-targets`: its tests need the lab, and with it every store.
const COMMAND_ALONE: &[&str] =
    &["clippy", "--package", "lockkeeper-cli", "--no-default-features", "--features"];

const EXAMPLES: &[&str] = &[
    "one_at_a_time",
    "task_pool",
    "five_threads",
    "tables_in_order",
    "ids_per_user",
    "order_numbers",
    "ids_while_a_database_is_down",
];

/// An example that needs a database, and the variables in which the lab says where each is.
const IN_DATABASES: (&str, [&str; 2]) =
    ("own_transaction", ["LOCKKEEPER_LAB_POSTGRES", "LOCKKEEPER_LAB_MARIADB"]);

fn test() -> Result<()> {
    let start = Instant::now();
    for step in STEPS {
        announce(step.what);
        run(step.arguments, step.environment)?;
    }
    for feature in FEATURES {
        announce(&format!("lints with the features [{feature}]"));
        let lints = ["clippy", "--package", "lockkeeper", "--features", feature, "--all-targets"];
        cargo(&[&lints[..], &["--", "--deny", "warnings"]].concat())?;
    }
    for feature in COMMAND_FEATURES {
        announce(&format!("lints of the command with the features [{feature}]"));
        cargo(&[COMMAND_ALONE, &[feature, "--", "--deny", "warnings"]].concat())?;
    }
    package::check()?;
    let store = std::env::temp_dir().join(format!("lockkeeper-examples-{}", std::process::id()));
    std::fs::create_dir_all(&store)?;
    let url = format!("sqlite:{}", store.join("locks.db").display());
    for example in EXAMPLES {
        run_example(example, &url)?;
    }
    std::fs::remove_dir_all(&store)?;
    let (example, variables) = IN_DATABASES;
    for variable in variables {
        let url = std::env::var(variable).with_context(|| format!("{variable} names no server"))?;
        run_example(example, &url)?;
    }
    let checked = licences()?;
    let elapsed = start.elapsed();
    match checked {
        true => println!("\neverything holds, after {elapsed:.0?}"),
        // At the very end, where it is noticed.
        false => println!(
            "\neverything that was checked holds, after {elapsed:.0?}\nUNKNOWN: licences and \
             sources of the dependencies, since cargo-deny is not installed: cargo install cargo-deny"
        ),
    }
    Ok(())
}

fn run_example(example: &str, url: &str) -> Result<()> {
    announce(&format!("example {example}"));
    let run = [
        "run",
        "--quiet",
        "--package",
        "lockkeeper",
        "--features",
        "full",
        "--example",
        example,
        "--",
        "--store",
        url,
    ];
    cargo(&run)
}

/// Checks the licences and sources of the dependencies; `false` where the tool for it is missing.
fn licences() -> Result<bool> {
    announce("licences and sources of the dependencies");
    let found = Command::new("cargo").args(["deny", "--version"]).output()?;
    if !found.status.success() {
        return Ok(false);
    }
    cargo(&["deny", "check", "licenses", "bans", "sources"])?;
    Ok(true)
}

fn announce(what: &str) {
    println!("\n== {what}");
}

fn cargo(arguments: &[&str]) -> Result<()> {
    run(arguments, &[])
}

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Cargo set them for this program. The cargo that is started now would take them for a change, and
    // build again whatever looks at them.
    for (variable, _) in std::env::vars_os() {
        let text = variable.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&variable);
        }
    }
    command.args(arguments).envs(environment.iter().copied());
    let line = format!("cargo {}", arguments.join(" "));
    let status = command.status().with_context(|| format!("cannot run {line}"))?;
    if !status.success() {
        bail!("failed: {line}");
    }
    Ok(())
}
