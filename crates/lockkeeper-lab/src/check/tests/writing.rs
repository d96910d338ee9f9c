//! Writing histories by hand.

use crate::check::{Demands, Report, Rule, check};
use crate::history::{Mode, Record, What};

/// A history in the making.
#[derive(Debug, Default, Clone)]
pub(crate) struct Writing(pub(crate) Vec<Record>);

impl Writing {
    pub(crate) fn note(&mut self, at: u64, client: &str, what: What) -> &mut Self {
        self.0.push(Record { at, client: client.to_owned(), what });
        self
    }

    pub(crate) fn ask(&mut self, at: u64, client: &str, claim: u64, mode: Mode) -> &mut Self {
        self.note(at, client, What::Ask { claim, name: "a".to_owned(), mode })
    }

    pub(crate) fn granted(&mut self, at: u64, claim: u64, token: u64, until: u64) -> &mut Self {
        self.note(at, "", What::Granted { claim, token, valid_until: until })
    }

    pub(crate) fn release(&mut self, at: u64, claim: u64) -> &mut Self {
        self.note(at, "", What::Release { claim })
    }

    /// An exclusive claim from beginning to end, with its number as its token.
    pub(crate) fn hold(
        &mut self,
        client: &str,
        claim: u64,
        ask: u64,
        from: u64,
        to: u64,
    ) -> &mut Self {
        self.ask(ask, client, claim, Mode::Exclusive)
            .granted(from, claim, claim, u64::MAX)
            .release(to, claim)
    }

    pub(crate) fn effect(&mut self, at: u64, claim: u64, token: u64, sequence: u64) -> &mut Self {
        let name = "a".to_owned();
        let what = What::Effect { claim, name, fenced: true, token, accepted: true, sequence };
        self.note(at, "", what)
    }

    pub(crate) fn fault(&mut self, from: u64, to: u64, kind: &str, process: &str) -> &mut Self {
        let (kind, process) = (kind.to_owned(), process.to_owned());
        self.note(from, "", What::FaultBegins { fault: from, kind, process });
        self.note(to, "", What::FaultEnds { fault: from, hit: true })
    }

    pub(crate) fn judge(&self) -> Report {
        check(&self.0, &Demands { fair: true, ..Demands::none() })
    }

    /// Which rules it breaks.
    pub(crate) fn broken(&self) -> Vec<Rule> {
        self.judge().broken.into_keys().collect()
    }
}

/// Three clients that pass a name on in turn; two of them always wait.
pub(crate) fn clean(holds: u64) -> Writing {
    let mut writing = Writing::default();
    for claim in 1..=holds {
        let client = format!("{}/0", claim % 3);
        let from = claim * 100;
        let ask = from.saturating_sub(195);
        writing.hold(&client, claim, ask, from, from + 90);
        writing.note(ask + 1, &client, What::Queued { claim });
        writing.note(from + 95, &client, What::Released { claim });
        writing.effect(from + 50, claim, claim, claim);
    }
    writing.note(100 * holds / 2, "", What::Healed);
    let name = "a".to_owned();
    let tally = What::Tally { name, fenced: true, acknowledged: holds, present: holds };
    writing.note(100 * holds + 200, "", tally);
    writing
}
