//! Tokens of one name are all different and grow with the grants.

use super::findings::{Findings, Rule};
use super::story::Story;

/// A grant that has a token.
struct Grant {
    name: usize,
    token: u64,
    ask: u64,
    granted: u64,
    claim: usize,
}

pub(crate) fn check(story: &Story<'_>, findings: &mut Findings<'_>) {
    let mut grants: Vec<Grant> = Vec::with_capacity(story.claims.len());
    for (place, claim) in story.claims.iter().enumerate() {
        if let Some(granted) = claim.granted
            && claim.token != 0
        {
            grants.push(Grant {
                name: claim.name,
                token: claim.token,
                ask: claim.ask.at,
                granted: granted.learnt.at,
                claim: place,
            });
        }
    }
    grants.sort_unstable_by_key(|grant| (grant.name, grant.token, grant.claim));
    for pair in grants.windows(2) {
        let first = |grant: &Grant| story.claims[grant.claim].first();
        if pair[0].name == pair[1].name
            && pair[0].token == pair[1].token
            && first(&pair[0]) != first(&pair[1])
        {
            findings.add(Rule::TokenTwice, || {
                let sentence = format!(
                    "claims {} and {} on {:?} both got token {}",
                    story.claims[pair[0].claim].number,
                    story.claims[pair[1].claim].number,
                    story.names[pair[0].name],
                    pair[0].token,
                );
                (sentence, records(story, &[&pair[0], &pair[1]]))
            });
        }
    }
    for grants in grants.chunk_by(|one, next| one.name == next.name) {
        order(story, grants, findings);
    }
}

/// Goes from the greatest token down. A claim is wrong if it was asked for after a greater token
/// had already been granted. Only the earliest of those grants needs to be remembered.
fn order(story: &Story<'_>, grants: &[Grant], findings: &mut Findings<'_>) {
    let mut earliest: Option<&Grant> = None;
    for same in grants.chunk_by(|one, next| one.token == next.token).rev() {
        for grant in same {
            if let Some(greater) = earliest.filter(|greater| greater.granted < grant.ask) {
                findings.add(Rule::TokenOrder, || {
                    let sentence = format!(
                        "claim {} on {:?} got token {}, though token {} had been granted before it was asked for",
                        story.claims[grant.claim].number,
                        story.names[grant.name],
                        grant.token,
                        greater.token,
                    );
                    (sentence, records(story, &[greater, grant]))
                });
            }
        }
        for grant in same {
            if earliest.is_none_or(|known| grant.granted < known.granted) {
                earliest = Some(grant);
            }
        }
    }
}

fn records(story: &Story<'_>, grants: &[&Grant]) -> Vec<usize> {
    let mut records = Vec::new();
    for (place, grant) in grants.iter().enumerate() {
        let claim = &story.claims[grant.claim];
        records.extend(claim.granted.map(|granted| granted.learnt.record));
        if place > 0 {
            records.push(claim.ask.record);
        }
    }
    records
}
