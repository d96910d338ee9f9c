//! The developer's commands: `cargo xtask test` and its parts.

use anyhow::{Context, Result, bail};
use std::process::Command;
use std::time::Instant;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test       everything that must hold: format, lints, docs, tests, examples, licences
  setup      install the servers that the tests use, if they are missing
  interop    locks of ours and of other libraries, against each other: interop etcd
  servers    start one of each server and print their URLs
  bench      the figures the README names, as ratios measured in one run
  table      print the capability table of the README";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => test_with_servers(),
        [STEPS_ONLY] => test(),
        ["setup"] => cargo(&[LAB, &["setup"]].concat()),
        ["servers"] => cargo(&[LAB, &["servers"]].concat()),
        ["interop", ..] => {
            let words: Vec<_> = arguments.iter().map(String::as_str).collect();
            cargo(&[LAB, &words].concat())
        }
        ["bench"] => {
            cargo(&["bench", "--package", "lockkeeper", "--features", "full"])?;
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

fn test_with_servers() -> Result<()> {
    announce("servers");
    cargo(&[LAB, &["setup"]].concat())?;
    let itself = std::env::current_exe()?;
    let itself = itself.to_str().context("this program has a strange path")?;
    cargo(&[LAB, &["with-servers", "--", itself, STEPS_ONLY]].concat())
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
    "mysql",
    "postgres",
    "redis",
    "serde",
    "sqlite",
    "ulid",
    "uuid",
    "zookeeper",
];

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
    command.args(arguments).envs(environment.iter().copied());
    let line = format!("cargo {}", arguments.join(" "));
    let status = command.status().with_context(|| format!("cannot run {line}"))?;
    if !status.success() {
        bail!("failed: {line}");
    }
    Ok(())
}
