//! A broken lock must be found out, and a sound one let pass, by the same workload.

use crate::locks::Key;
use crate::redis;
use lockkeeper::backend::Backend;
use lockkeeper_lab::check::{Demands, Report, Rule, Verdict, check};
use lockkeeper_lab::proxy::Framing;
use lockkeeper_lab::workload::{Fault, Trial};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const CASES: &[crate::Case] = &[
    ("trials::a_blind_delete_is_found_out", a_blind_delete_is_found_out),
    ("trials::a_careful_delete_passes", a_careful_delete_passes),
    ("trials::a_blind_delete_that_comes_late_is_found_out", a_late_delete_is_found_out),
    ("trials::a_careful_lock_survives_partition", || survives(Fault::Partition)),
    ("trials::a_careful_lock_survives_one_way", || survives(Fault::OneWay)),
    ("trials::a_careful_lock_survives_reset", || survives(Fault::Reset)),
    ("trials::a_careful_lock_survives_lost_reply", || survives(Fault::LostReply)),
    ("trials::a_careful_lock_survives_late", || survives(Fault::Late)),
    ("trials::a_careful_lock_survives_latency", || survives(Fault::Latency)),
    ("trials::a_careful_lock_survives_server_kill", || survives(Fault::ServerKill)),
    ("trials::a_careful_lock_survives_server_pause", || survives(Fault::ServerPause)),
    ("trials::a_server_that_forgets_is_found_out", a_server_that_forgets_is_found_out),
    ("trials::a_clock_that_jumps_is_found_out", a_clock_that_jumps_is_found_out),
    ("trials::a_fault_without_its_server_is_refused", a_fault_without_its_server_is_refused),
];

const TTL: Duration = Duration::from_millis(300);
/// How long a request may take.
const LIMIT: Duration = Duration::from_millis(150);

type Open = fn(SocketAddr, Duration) -> Arc<dyn Backend>;

/// Short claims on one name, and work that takes a tenth of them.
fn trial(fault: Fault, seconds: u64, folder: &tempfile::TempDir) -> Trial {
    Trial {
        processes: 4,
        clients: 3,
        names: 1,
        ttl: TTL,
        toil: TTL / 10,
        length: Duration::from_secs(seconds),
        healing: 2 * TTL,
        faults: vec![fault],
        seed: 11,
        ..Trial::new(folder.path().to_owned())
    }
}

fn judge(fault: Fault, seconds: u64, open: Open) -> Report {
    let (server, address) = redis(fault == Fault::ClockJump);
    let folder = tempfile::tempdir().expect("a folder");
    let hosts = [address];
    let open = move |hosts: &[SocketAddr]| open(hosts[0], LIMIT);
    let run = trial(fault, seconds, &folder);
    let run = run.run_behind(&hosts, Framing::Resp, open, Some(Box::new(server))).expect("a run");
    assert!(run.remarks[0].contains("lists nothing"), "{:?}", run.remarks);
    let stalls = Some(run.stalls);
    let demands = Demands { stalls, ..Demands::of_a_run(vec![fault.word().to_owned()]) };
    // A few seconds of a lock that is polled for see less than a real run, but not nothing.
    let faults = [(fault.word().to_owned(), 2)].into();
    check(&run.records, &Demands { faults, hand_overs: 30, contended_percent: 30, ..demands })
}

fn a_blind_delete_is_found_out() {
    let report = judge(Fault::Stall, 6, Key::blind);
    assert_eq!(report.verdict, Verdict::Fail, "{report}");
    assert!(report.breaks(Rule::Exclusion), "{report}");
    assert!(report.counters.clients >= 3, "{report}");
}

fn a_careful_delete_passes() {
    let report = judge(Fault::Stall, 6, Key::careful);
    assert_eq!(report.verdict, Verdict::Pass, "{report}");
}

fn a_late_delete_is_found_out() {
    let report = judge(Fault::Late, 6, Key::blind);
    assert!(report.breaks(Rule::Exclusion), "{report}");
}

fn survives(fault: Fault) {
    let report = judge(fault, 4, Key::careful);
    assert_eq!(report.verdict, Verdict::Pass, "{report}");
}

/// That a lock in memory does not survive this is the truth, and shows that the fault is one.
fn a_server_that_forgets_is_found_out() {
    let report = judge(Fault::ServerRestartEmpty, 4, Key::careful);
    assert!(report.breaks(Rule::Exclusion), "{report}");
}

/// The same: a key that expires by a clock is no better than the clock.
fn a_clock_that_jumps_is_found_out() {
    let report = judge(Fault::ClockJump, 4, Key::careful);
    assert!(report.breaks(Rule::Exclusion), "{report}");
}

fn a_fault_without_its_server_is_refused() {
    let (_server, address) = redis(false);
    let folder = tempfile::tempdir().expect("a folder");
    let open = |hosts: &[SocketAddr]| Key::careful(hosts[0], LIMIT);
    for (fault, why) in [(Fault::ServerKill, "the server itself"), (Fault::Kill, "processes")] {
        let run = trial(fault, 1, &folder);
        let error = run.run_behind(&[address], Framing::Resp, open, None).expect_err("none");
        assert!(error.to_string().contains(why), "{error}");
    }
}
