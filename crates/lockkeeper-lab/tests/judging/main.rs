//! The lab on a real Redis: its proxy, and locks that it must tell apart.
//!
//! Where there is no `redis-server` these tests are ignored, and say so; with
//! `LOCKKEEPER_REQUIRE_SERVERS=1` they fail instead.

mod client;
mod locks;
mod proxied;
mod trials;

use libtest_mimic::{Arguments, Trial};
use lockkeeper_lab::server::{Kind, Lab, Server, missing};
use std::net::SocketAddr;

type Case = (&'static str, fn());

fn main() {
    let mut arguments = Arguments::from_args();
    // They mostly wait, so more of them at once than there are cores.
    arguments.test_threads.get_or_insert(4);
    let missing = missing(&[Kind::Redis]);
    let cases = proxied::CASES.iter().chain(trials::CASES);
    let trials = cases.map(|&(name, case)| match &missing {
        None => Trial::test(name, move || {
            case();
            Ok(())
        }),
        Some(why) => {
            Trial::test(name, || Ok(())).with_kind(why.to_string()).with_ignored_flag(true)
        }
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

/// A Redis that keeps every write, if need be by a clock of its own, and where it is.
fn redis(with_clock: bool) -> (Server, SocketAddr) {
    let plan = Lab::open().expect("a lab").redis().durable();
    let plan = if with_clock { plan.clock() } else { plan };
    let server = plan.start().expect("a Redis");
    let address = server.address().parse().expect("an address");
    (server, address)
}
