//! The time during which a holder certainly believed its claim.

use super::claims::{Claim, Stamp};
use super::findings::{Findings, Rule};
use super::story::Story;

/// What ended a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Released,
    Lost,
    Expired,
    Killed,
    /// The history ends before the hold does.
    Open,
}

/// The core of a claim: `[start, end)`. A pause does not shorten it: a paused holder goes on
/// believing its claim.
///
/// Two holds meet if each begins before the other ends. Touching ends do not meet, and a hold of
/// zero length meets a hold that begins before it and ends after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hold {
    /// The claim's index in the story.
    pub(crate) claim: usize,
    pub(crate) name: usize,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) ended_by: End,
    /// The record that shows the end.
    pub(crate) end_record: usize,
}

/// The holds of all claims, in order of name, start, end. Also sorts the renewals of each claim.
pub(crate) fn gather(story: &mut Story<'_>, findings: &mut Findings<'_>) -> Vec<Hold> {
    let mut holds = Vec::with_capacity(story.claims.len());
    for claim in &mut story.claims {
        claim.renewals.sort_by_key(|renewal| renewal.learnt.at);
    }
    for (place, claim) in story.claims.iter().enumerate() {
        holds.extend(core(story, place, claim, findings));
    }
    holds.sort_unstable_by_key(|hold| (hold.name, hold.start, hold.end, hold.claim));
    holds
}

/// A claim that was no longer valid when its holder learnt of the grant has no core.
fn core(
    story: &Story<'_>,
    place: usize,
    claim: &Claim,
    findings: &mut Findings<'_>,
) -> Option<Hold> {
    let granted = claim.granted?;
    let start = granted.learnt.at;
    // A process that is killed wrote the stamp of its grant before it died, even if that stamp is
    // later.
    let killed = story.hits[claim.client].kills.first_from(start);
    let gone = earlier(claim.release, killed).map_or(u64::MAX, |stamp| stamp.at);
    let mut validity = granted;
    for renewal in &claim.renewals {
        // An answer that arrives during the release changes nothing.
        if renewal.learnt.at > gone {
            break;
        }
        if renewal.learnt.at > validity.until {
            findings.add(Rule::Resurrection, || {
                let late = renewal.learnt.at - validity.until;
                let sentence = format!(
                    "{} renewed claim {} on {:?} {} after its validity had ended",
                    story.client_of(claim),
                    claim.number,
                    story.name_of(claim),
                    span(late),
                );
                (sentence, vec![validity.learnt.record, renewal.learnt.record])
            });
            break;
        }
        validity = *renewal;
    }
    if granted.until <= start {
        return None;
    }
    let ends_open = validity.until > story.last;
    let expiry = Stamp { at: validity.until, record: validity.learnt.record };
    let mut end = (expiry, if ends_open { End::Open } else { End::Expired });
    let others = [(claim.release, End::Released), (claim.lost, End::Lost), (killed, End::Killed)];
    for (stamp, ended_by) in others {
        // At the same moment, an explicit act counts for more than an expiry.
        if let Some(stamp) = stamp
            && (stamp.at < end.0.at || (stamp.at == end.0.at && end.1 == End::Expired))
        {
            end = (stamp, ended_by);
        }
    }
    Some(Hold {
        claim: place,
        name: claim.name,
        start,
        end: end.0.at.max(start),
        ended_by: end.1,
        end_record: end.0.record,
    })
}

fn earlier(one: Option<Stamp>, other: Option<Stamp>) -> Option<Stamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.at < one.at { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// A span of time, formatted for people.
pub(crate) fn span(nanoseconds: u64) -> String {
    match nanoseconds {
        0..10_000 => format!("{nanoseconds} ns"),
        10_000..10_000_000 => format!("{} µs", nanoseconds / 1_000),
        10_000_000..10_000_000_000 => format!("{} ms", nanoseconds / 1_000_000),
        _ => format!("{} s", nanoseconds / 1_000_000_000),
    }
}
