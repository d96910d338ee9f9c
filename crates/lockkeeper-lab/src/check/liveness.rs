//! After the last fault every claim gets an answer, each name is granted, and nothing is left over.

use super::findings::{Findings, Rule};
use super::story::Story;

pub(crate) fn check(story: &Story<'_>, findings: &mut Findings<'_>) {
    for &(record, name) in &story.leftovers {
        let sentence = format!("{name:?} was still in the store at the end");
        findings.add(Rule::Leftover, || (sentence, vec![record]));
    }
    let Some(healed) = story.healed else { return };
    let mut asked: Vec<Option<usize>> = vec![None; story.names.len()];
    let mut granted = vec![false; story.names.len()];
    for claim in &story.claims {
        granted[claim.name] |= claim.granted.is_some_and(|granted| granted.learnt.at > healed);
        if claim.ask.at <= healed {
            continue;
        }
        asked[claim.name].get_or_insert(claim.ask.record);
        if claim.granted.is_none() && claim.refused.is_none() {
            findings.add(Rule::Starved, || {
                let sentence = format!(
                    "claim {} on {:?} by {} was asked for after all was well and never answered",
                    claim.number,
                    story.name_of(claim),
                    story.client_of(claim),
                );
                (sentence, vec![claim.ask.record])
            });
        }
    }
    for (name, asked) in asked.into_iter().enumerate() {
        if let Some(ask) = asked.filter(|_| !granted[name]) {
            findings.add(Rule::Starved, || {
                let name = story.names[name];
                (format!("{name:?} was asked for after all was well and never granted"), vec![ask])
            });
        }
    }
}
