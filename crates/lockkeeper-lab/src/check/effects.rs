//! Which writes a resource that checks tokens accepted, and in which order.

use super::claims::{Claim, Effect};
use super::findings::{Findings, Rule};
use super::story::Story;
use std::collections::HashMap;

pub(crate) fn check(story: &Story<'_>, findings: &mut Findings<'_>) {
    for effect in &story.effects {
        granted(story, effect, findings);
    }
    let unrecorded = unrecorded(story);
    let mut taken: Vec<&Effect> =
        story.effects.iter().filter(|effect| effect.fenced && effect.accepted).collect();
    taken.sort_by_key(|effect| (effect.name, effect.sequence, effect.stamp.at));
    for effects in taken.chunk_by(|one, next| one.name == next.name) {
        let spare = unrecorded.get(&effects[0].name).copied().unwrap_or(0);
        tokens(story, effects, findings);
        sequence(story, effects, spare, findings);
    }
    for tally in story.tallies.iter().filter(|tally| tally.fenced) {
        let spare = unrecorded.get(&tally.name).copied().unwrap_or(0);
        let most = tally.acknowledged.saturating_add(spare);
        if tally.present < tally.acknowledged || tally.present > most {
            findings.add(Rule::LostWrite, || {
                let sentence = format!(
                    "the fenced resource {:?} acknowledged {} writes and holds {}",
                    story.names[tally.name], tally.acknowledged, tally.present,
                );
                (sentence, vec![tally.record])
            });
        }
    }
}

/// A write needs a grant that its writer had already seen, and must carry that grant's token.
fn granted(story: &Story<'_>, effect: &Effect, findings: &mut Findings<'_>) {
    let claim = story.claim(effect.number);
    let known = claim.and_then(|claim| claim.granted.map(|granted| (claim, granted)));
    let wrong = match known {
        None => "which was never granted",
        Some((_, granted)) if granted.learnt.at > effect.stamp.at => "before it was granted",
        Some((claim, _)) if claim.name != effect.name => "which is on another name",
        Some((claim, _)) if effect.fenced && claim.token != effect.token => {
            "with a token that is not its own"
        }
        Some(_) => return,
    };
    findings.add(Rule::EffectWithoutGrant, || {
        let name = story.names[effect.name];
        let sentence = format!("a write to {name:?} under claim {}, {wrong}", effect.number);
        let mut records = vec![effect.stamp.record];
        records.extend(known.map(|(_, granted)| granted.learnt.record));
        records.extend(claim.filter(|_| known.is_none()).map(|claim| claim.ask.record));
        (sentence, records)
    });
}

/// How many writes to each name may be missing from the history: a writer that is killed leaves at
/// most one write that the resource accepted and the writer did not record.
fn unrecorded(story: &Story<'_>) -> HashMap<usize, u64> {
    let died = |claim: &&Claim| {
        let kills = &story.hits[claim.client].kills;
        let granted = claim.granted.filter(|_| claim.release.is_none());
        granted.is_some_and(|granted| kills.first_from(granted.learnt.at).is_some())
    };
    let mut counts = HashMap::new();
    for claim in story.claims.iter().filter(died) {
        *counts.entry(claim.name).or_default() += 1;
    }
    counts
}

fn tokens(story: &Story<'_>, effects: &[&Effect], findings: &mut Findings<'_>) {
    let mut newest: Option<&Effect> = None;
    for &effect in effects.iter().filter(|effect| effect.token != 0) {
        match newest {
            Some(newest) if effect.token < newest.token => {
                findings.add(Rule::EffectOrder, || {
                    let sentence = format!(
                        "the fenced resource {:?} took token {} after token {}",
                        story.names[effect.name], effect.token, newest.token,
                    );
                    (sentence, vec![newest.stamp.record, effect.stamp.record])
                });
            }
            _ => newest = Some(effect),
        }
    }
}

fn sequence(story: &Story<'_>, effects: &[&Effect], spare: u64, findings: &mut Findings<'_>) {
    let mut before: Option<&Effect> = None;
    let mut missing: u64 = 0;
    for &effect in effects {
        let last = before.map_or(0, |before| before.sequence);
        let step = effect.sequence - last;
        missing += step.saturating_sub(1);
        // The count starts at one, so zero repeats the state before the first write.
        if step == 0 || (step > 1 && missing > spare) {
            findings.add(Rule::EffectSequence, || {
                let name = story.names[effect.name];
                let sentence = format!(
                    "the fenced resource {name:?} counted {} after {last}",
                    effect.sequence
                );
                let mut records = vec![effect.stamp.record];
                records.extend(before.map(|before| before.stamp.record));
                (sentence, records)
            });
        }
        before = Some(effect);
    }
}
