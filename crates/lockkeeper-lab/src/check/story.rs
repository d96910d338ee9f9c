//! A history in the form that the rules need: by claim, by name, by client.

use super::claims::{Claim, Effect, Stamp, Tally, Validity};
use super::faults::{Fault, Hits};
use super::findings::{Findings, Rule};
use super::holds::{self, Hold};
use super::ids::{self, Issue};
use super::places::Places;
use crate::history::{Record, What};
use std::collections::HashMap;

/// Maps strings to small numbers.
#[derive(Debug, Default)]
struct Numbered<'a> {
    numbers: HashMap<&'a str, usize>,
    strings: Vec<&'a str>,
}

impl<'a> Numbered<'a> {
    fn number(&mut self, string: &'a str) -> usize {
        *self.numbers.entry(string).or_insert_with(|| {
            self.strings.push(string);
            self.strings.len() - 1
        })
    }
}

/// The whole history.
#[derive(Debug)]
pub(crate) struct Story<'a> {
    pub(crate) names: Vec<&'a str>,
    pub(crate) clients: Vec<&'a str>,
    pub(crate) claims: Vec<Claim>,
    /// From a claim's number to its index in `claims`.
    pub(crate) places: Places,
    /// In order of name, start, end.
    pub(crate) holds: Vec<Hold>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) generators: Vec<&'a str>,
    pub(crate) issues: Vec<Issue>,
    pub(crate) faults: Vec<Fault<'a>>,
    /// By client.
    pub(crate) hits: Vec<Hits<'a>>,
    pub(crate) tallies: Vec<Tally>,
    pub(crate) leftovers: Vec<(usize, &'a str)>,
    /// The last time that all faults were recorded as over.
    pub(crate) healed: Option<u64>,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl<'a> Story<'a> {
    pub(crate) fn read(records: &'a [Record], findings: &mut Findings<'_>) -> Self {
        let (mut names, mut clients) = (Numbered::default(), Numbered::default());
        let mut claims: Vec<Claim> = Vec::new();
        let mut places = Places::default();
        for (record, Record { at, client, what }) in records.iter().enumerate() {
            let What::Ask { claim, name, mode } = what else { continue };
            let ask = Stamp { at: *at, record };
            if let Some(&place) = places.get(claim) {
                let other: &Claim = &claims[place];
                findings.add(Rule::History, || {
                    (format!("claim {claim} was asked for twice"), vec![other.ask.record, record])
                });
                continue;
            }
            places.insert(*claim, claims.len());
            let (name, client) = (names.number(name), clients.number(client));
            claims.push(Claim::new(*claim, name, client, *mode, ask));
        }
        let (mut generators, mut issues) = (Numbered::default(), Vec::new());
        for (record, Record { at, client, what }) in records.iter().enumerate() {
            let What::Issued { generator, asked, first, count } = what else { continue };
            let who = (clients.number(client), generators.number(generator));
            let returned = Stamp { at: *at, record };
            issues.extend(ids::issue(returned, *asked, who, (*first, *count), findings));
        }
        let mut story = Self {
            names: Vec::new(),
            clients: clients.strings,
            claims,
            places,
            holds: Vec::new(),
            effects: Vec::new(),
            generators: generators.strings,
            issues,
            faults: Vec::new(),
            hits: Vec::new(),
            tallies: Vec::new(),
            leftovers: Vec::new(),
            healed: None,
            first: records.iter().map(|record| record.at).min().unwrap_or(0),
            last: records.iter().map(|record| record.at).max().unwrap_or(0),
        };
        let mut fault_ends = HashMap::new();
        let mut fault_numbers = Vec::new();
        for (record, Record { at, what, .. }) in records.iter().enumerate() {
            let stamp = Stamp { at: *at, record };
            match what {
                What::Effect { claim, name, fenced, token, accepted, sequence } => {
                    story.effects.push(Effect {
                        stamp,
                        number: *claim,
                        name: names.number(name),
                        fenced: *fenced,
                        token: *token,
                        accepted: *accepted,
                        sequence: *sequence,
                    });
                }
                What::FaultBegins { fault, kind, process } => {
                    fault_numbers.push(*fault);
                    story.faults.push(Fault {
                        kind,
                        process,
                        begins: stamp,
                        ends: u64::MAX,
                        hit: true,
                    });
                }
                What::FaultEnds { fault, hit } => {
                    fault_ends.insert(*fault, (*at, *hit));
                }
                What::Healed => story.healed = story.healed.max(Some(*at)),
                What::Tally { name, fenced, acknowledged, present } => {
                    story.tallies.push(Tally {
                        record,
                        name: names.number(name),
                        fenced: *fenced,
                        acknowledged: *acknowledged,
                        present: *present,
                    });
                }
                What::Leftover { name } => story.leftovers.push((record, name)),
                other => story.claim_event(other, stamp, findings),
            }
        }
        for (fault, number) in story.faults.iter_mut().zip(fault_numbers) {
            if let Some((ends, hit)) = fault_ends.get(&number) {
                (fault.ends, fault.hit) = (*ends, *hit);
            }
        }
        story.names = names.strings;
        let hits = |client: &&str| Hits::on(client, &story.clients, &story.faults);
        story.hits = story.clients.iter().map(hits).collect();
        story.holds = holds::gather(&mut story, findings);
        story
    }

    /// The story alone, for callers that already have the verdict.
    pub(crate) fn of(records: &'a [Record]) -> Self {
        Self::read(records, &mut Findings::new(records))
    }

    /// Adds an event to its claim. If a claim ends several times, the earliest end counts.
    fn claim_event(&mut self, what: &What, stamp: Stamp, findings: &mut Findings<'_>) {
        let (What::Ask { claim: number, .. }
        | What::Continues { claim: number, .. }
        | What::Queued { claim: number }
        | What::Granted { claim: number, .. }
        | What::Refused { claim: number, .. }
        | What::Renewed { claim: number, .. }
        | What::Lost { claim: number }
        | What::Release { claim: number }
        | What::Released { claim: number }) = what
        else {
            return;
        };
        let Some(&place) = self.places.get(number) else {
            findings.add(Rule::History, || {
                (format!("claim {number} was never asked for"), vec![stamp.record])
            });
            return;
        };
        let claim = &mut self.claims[place];
        let ask = claim.ask;
        let mut wrong = stamp.at < ask.at;
        match *what {
            What::Continues { of, .. } => claim.continues = Some(of),
            What::Queued { .. } => earliest(&mut claim.queued, stamp),
            What::Granted { token, valid_until, .. } => {
                wrong |= claim.granted.is_some() || claim.refused.is_some();
                if claim.granted.is_none() {
                    claim.granted = Some(Validity { learnt: stamp, until: valid_until });
                    claim.token = token;
                }
            }
            What::Refused { .. } => {
                wrong |= claim.granted.is_some() || claim.refused.is_some();
                earliest(&mut claim.refused, stamp);
            }
            What::Renewed { valid_until, .. } => {
                claim.renewals.push(Validity { learnt: stamp, until: valid_until });
            }
            What::Lost { .. } => earliest(&mut claim.lost, stamp),
            What::Release { .. } => earliest(&mut claim.release, stamp),
            What::Released { .. } => earliest(&mut claim.released, stamp),
            _ => {}
        }
        if wrong {
            findings.add(Rule::History, || {
                let sentence =
                    format!("claim {number} has two answers, or one before it was asked");
                (sentence, vec![ask.record, stamp.record])
            });
        }
    }

    pub(crate) fn claim(&self, number: u64) -> Option<&Claim> {
        self.places.get(&number).map(|&place| &self.claims[place])
    }

    pub(crate) fn name_of(&self, claim: &Claim) -> &'a str {
        self.names[claim.name]
    }

    pub(crate) fn client_of(&self, claim: &Claim) -> &'a str {
        self.clients[claim.client]
    }

    /// The claim of a hold.
    pub(crate) fn held(&self, hold: &Hold) -> &Claim {
        &self.claims[hold.claim]
    }
}

fn earliest(slot: &mut Option<Stamp>, stamp: Stamp) {
    if slot.is_none_or(|known| stamp.at < known.at) {
        *slot = Some(stamp);
    }
}
