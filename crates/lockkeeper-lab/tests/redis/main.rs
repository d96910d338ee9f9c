//! The lab on a real Redis: its proxy, and locks that it must tell apart.
//!
//! Where there is no `redis-server` these tests are ignored, and say so; with
//! `LOCKKEEPER_REQUIRE_SERVERS=1` they fail instead.

mod client;
mod locks;
mod proxied;
mod server;
mod trials;

use libtest_mimic::{Arguments, Failed, Trial};
use std::process::{Command, Stdio};

type Case = (&'static str, fn());

fn main() {
    let mut arguments = Arguments::from_args();
    // They mostly wait, so more of them at once than there are cores.
    arguments.test_threads.get_or_insert(4);
    let required = std::env::var("LOCKKEEPER_REQUIRE_SERVERS").is_ok_and(|value| value == "1");
    let version = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
    let missing = !version.is_ok_and(|status| status.success());
    let cases = proxied::CASES.iter().chain(trials::CASES);
    let trials = cases.map(|&(name, case)| match missing {
        false => Trial::test(name, move || {
            case();
            Ok(())
        }),
        true if required => Trial::test(name, || Err(Failed::from("redis-server is missing"))),
        true => Trial::test(format!("{name} (redis-server is missing)"), || Ok(()))
            .with_ignored_flag(true),
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
