//! Every order of events of the quorum's protocol, as far as a few ticks, three nodes and two clients
//! go: which rules keep claims apart, and that each of them is needed.

mod protocol;

use protocol::{Protocol, Restarts};
use stateright::{Checker, HasDiscoveries, Model};

const EXCLUSION: &str = "claims exclude";
const TOKENS: &str = "tokens grow";
const FENCE: &str = "a fence lets no stale write through";
const IN_TURN: &str = "one after the other";
const STALE: &str = "a stale write comes";

const SOUND: Protocol = Protocol {
    restarts: Restarts::None,
    clock_jump: false,
    valid_from_reply: false,
    writes: false,
    renewals: true,
    ttl: 2,
    ticks: 4,
};

/// Visits every state: nothing may be found that should not be.
fn holds(protocol: Protocol) {
    let checker = protocol.checker().spawn_bfs().join();
    println!("{protocol:?}: {} states", checker.unique_state_count());
    let found = checker.discoveries();
    assert!(found.contains_key(IN_TURN), "unknown: nobody came after another");
    assert!(found.contains_key(STALE), "unknown: no stale write came");
    for property in [EXCLUSION, TOKENS, FENCE] {
        let way = found.get(property).map(|path| path.clone().into_actions());
        assert!(way.is_none(), "{property:?} is broken by {way:?}");
    }
}

/// Looks for two that hold at once, and for the write of the one that should not; and at every state
/// whether the fence let such a write through: it is what is left.
fn breaks(protocol: Protocol) {
    let protocol = Protocol { writes: true, ..protocol };
    let checker = protocol.checker().finish_when(HasDiscoveries::All).spawn_bfs().join();
    println!("{protocol:?}: {} states", checker.unique_state_count());
    let found = checker.discoveries();
    assert!(found.contains_key(EXCLUSION), "it holds all the same");
    assert!(found.contains_key(STALE), "unknown: no stale write came");
    let way = found.get(FENCE).map(|path| path.clone().into_actions());
    assert!(way.is_none(), "the fence let a stale write through: {way:?}");
}

#[test]
fn without_faults_claims_exclude() {
    holds(SOUND);
}

/// A client that was paused writes when its time is long over.
#[test]
fn without_faults_late_writes_are_refused() {
    holds(Protocol { writes: true, renewals: false, ..SOUND });
}

#[test]
fn with_delayed_restarts_claims_exclude() {
    holds(Protocol { restarts: Restarts::Delayed, ..SOUND });
}

#[test]
fn validity_that_counts_from_the_reply_breaks_it() {
    breaks(Protocol { valid_from_reply: true, renewals: false, ..SOUND });
}

#[test]
fn a_restart_without_delay_breaks_it() {
    breaks(Protocol { restarts: Restarts::VoteAtOnce, renewals: false, ttl: 3, ..SOUND });
}

#[test]
fn a_clock_that_jumps_breaks_it() {
    breaks(Protocol { clock_jump: true, renewals: false, ..SOUND });
}

/// Why a key that a restarted node is given anew does not count before the node may vote.
#[test]
fn a_renewal_that_counts_a_restarted_node_breaks_it() {
    breaks(Protocol { restarts: Restarts::DelayedExceptRenewals, ttl: 3, ..SOUND });
}
