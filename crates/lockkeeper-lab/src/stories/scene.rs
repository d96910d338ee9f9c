//! One telling: steps that a reader follows, what they left in the history, and what the judge says.

use super::act::{Act, Figure, Shown};
use super::client::{Client, lane};
use super::stage::Stage;
use crate::check::{self, Demands, Rule, Stalls, Verdict};
use crate::history::{Mode, Record, Refusal, What};
use crate::picture::Mark;
use crate::workload::{self, Recorder, Resources, nanos, now};
use anyhow::Result;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Something did not go as the story needs it. Where a scheme is to fail, that is *unknown*; where
/// its cure is to hold, that is a failure.
#[derive(Debug)]
pub(crate) struct OffScript {
    pub(crate) verdict: Verdict,
    what: String,
}

impl fmt::Display for OffScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for OffScript {}

/// What the judge must find where a scheme is to fail.
#[derive(Debug)]
pub(crate) enum Sign {
    /// This rule is broken.
    Broken(Rule),
    /// A resource without a fence has lost a write that it acknowledged.
    LostWrite,
    /// Both.
    BrokenAndLost(Rule),
    /// Somebody waits, nobody holds, and nothing explains that.
    Stalled(Stalls),
}

/// A telling in progress.
pub(crate) struct Scene<'a> {
    stage: &'a Stage,
    heading: String,
    cure: bool,
    file: PathBuf,
    recorder: Recorder,
    resources: Resources,
    claims: Arc<AtomicU64>,
    faults: Arc<AtomicU64>,
    began: u64,
    steps: Vec<(u64, String)>,
    marks: Vec<Mark>,
}

impl<'a> Scene<'a> {
    /// A scheme that is to fail.
    pub(crate) fn failing(stage: &'a Stage, heading: &str) -> Result<Self> {
        Self::open(stage, heading, false)
    }

    /// The cure.
    pub(crate) fn cure(stage: &'a Stage, heading: &str) -> Result<Self> {
        Self::open(stage, heading, true)
    }

    fn open(stage: &'a Stage, heading: &str, cure: bool) -> Result<Self> {
        let file = stage.new_history();
        let recorder = Recorder::append_to(&file)?;
        stage.print(&format!("\n  {heading}"));
        Ok(Self {
            stage,
            heading: heading.to_owned(),
            cure,
            resources: Resources::open(recorder.clone())?,
            file,
            recorder,
            claims: Arc::new(AtomicU64::new(1)),
            faults: Arc::new(AtomicU64::new(1)),
            began: 0,
            steps: Vec::new(),
            marks: Vec::new(),
        })
    }

    /// A client of its own process at the store with this URL.
    pub(crate) fn client(&self, name: &str, url: &str) -> Result<Client> {
        Client::start(self, name, url)
    }

    /// The next step, as it happens.
    pub(crate) fn say(&mut self, text: impl Into<String>) {
        let (at, text) = (now(), text.into());
        if self.steps.is_empty() {
            self.began = at;
        }
        self.steps.push((at, text.clone()));
        let seconds = Duration::from_nanos(at - self.began).as_secs_f64();
        self.stage.print(&format!("  {:>3}  {seconds:>6.2} s  {text}", self.steps.len()));
    }

    /// Words in the picture, at this moment, on the lane of a client.
    pub(crate) fn mark(&mut self, name: &str, text: &str, bad: bool) {
        let (at, client, text) = (now(), lane(name), text.to_owned());
        self.marks.push(Mark { at, client, text, bad });
    }

    /// Ends the telling if this is not so.
    pub(crate) fn must(&self, is_so: bool, otherwise: impl Into<String>) -> Result<()> {
        if is_so {
            return Ok(());
        }
        let verdict = if self.cure { Verdict::Fail } else { Verdict::Unknown };
        let what = format!("{}: {}", self.heading, otherwise.into());
        Err(OffScript { verdict, what }.into())
    }

    /// A fault of something that is not a client.
    pub(crate) fn fault_begins(&self, kind: &str, whose: &str) -> u64 {
        let fault = self.faults.fetch_add(1, Ordering::SeqCst);
        let (kind, process) = (kind.to_owned(), whose.to_owned());
        self.note("lab", What::FaultBegins { fault, kind, process });
        fault
    }

    /// The end of such a fault.
    pub(crate) fn fault_ends(&self, fault: u64) {
        self.note("lab", What::FaultEnds { fault, hit: true });
    }

    /// All faults are over: from here on whoever asks must be served.
    pub(crate) fn healed(&self) {
        self.note("lab", What::Healed);
    }

    /// Something of this name is left in the store.
    pub(crate) fn leftover(&self, name: &str) {
        self.note("lab", What::Leftover { name: name.to_owned() });
    }

    /// By hand: a client that the story itself plays is about to ask.
    pub(crate) fn asks(&self, client: &str, name: &str) -> u64 {
        let claim = self.claims(1);
        let what = What::Ask { claim, name: name.to_owned(), mode: Mode::Exclusive };
        self.note(&lane(client), what);
        claim
    }

    /// By hand: it believes to hold, for so long.
    pub(crate) fn granted(&self, client: &str, claim: u64, valid_for: Duration) {
        let valid_until = now().saturating_add(nanos(valid_for));
        self.note(&lane(client), What::Granted { claim, token: 0, valid_until });
    }

    /// By hand: it gave up.
    pub(crate) fn gave_up(&self, client: &str, claim: u64) {
        self.note(&lane(client), What::Refused { claim, how: Refusal::TimedOut });
    }

    /// By hand: it gives back.
    pub(crate) fn gives_back(&self, client: &str, claim: u64) {
        self.note(&lane(client), What::Release { claim });
        self.note(&lane(client), What::Released { claim });
    }

    fn note(&self, client: &str, what: What) {
        self.recorder.note(client, what);
    }

    /// The scheme was to fail: whether it did.
    pub(crate) fn fails(self, sign: &Sign) -> Result<Act> {
        let stalls = match sign {
            Sign::Stalled(stalls) => Some(stalls.clone()),
            _ => None,
        };
        let (records, report) = self.judged(&Demands { stalls, ..Demands::none() })?;
        let broken = |rule: &Rule| {
            let first = report.violations.iter().find(|violation| violation.rule == *rule);
            first.map(|violation| plain(&violation.sentence))
        };
        let lost = (report.counters.lost_writes > 0)
            .then(|| format!("{} acknowledged write was lost", report.counters.lost_writes));
        let found = match sign {
            Sign::Broken(rule) => broken(rule),
            Sign::Stalled(_) => broken(&Rule::Stalled),
            Sign::LostWrite => lost,
            Sign::BrokenAndLost(rule) => {
                broken(rule).zip(lost).map(|(broken, lost)| format!("{broken}; {lost}"))
            }
        };
        let verdict = if found.is_some() { Verdict::Fail } else { Verdict::Unknown };
        let found = found.unwrap_or_else(|| format!("nothing went wrong: {}", report.verdict));
        Ok(self.end(verdict, found, Shown::History { records, report: Box::new(report) }))
    }

    /// The cure is to hold: whether it did, and enough happened to tell. Rules in `spared` are not
    /// what this cure is about.
    pub(crate) fn holds(self, demands: &Demands, spared: &[Rule], found: &str) -> Result<Act> {
        let (records, report) = self.judged(demands)?;
        let broken = report.violations.iter().find(|violation| !spared.contains(&violation.rule));
        let lost = report.counters.lost_writes;
        let (verdict, found) = match broken {
            Some(violation) => (Verdict::Fail, plain(&violation.sentence)),
            None if lost > 0 => (Verdict::Fail, format!("{lost} acknowledged write was lost")),
            None if report.verdict == Verdict::Unknown => {
                (Verdict::Unknown, report.reasons.join("; "))
            }
            None => (Verdict::Pass, found.to_owned()),
        };
        Ok(self.end(verdict, found, Shown::History { records, report: Box::new(report) }))
    }

    /// The first rule that was broken so far, in a sentence.
    pub(crate) fn broken(&self) -> Result<Option<String>> {
        let (_, report) = self.judged(&Demands::none())?;
        Ok(report.violations.first().map(|violation| plain(&violation.sentence)))
    }

    /// What was measured, and what the story says of it.
    pub(crate) fn measured(self, verdict: Verdict, found: String, figures: Vec<Figure>) -> Act {
        self.end(verdict, found, Shown::Figures(figures))
    }

    fn judged(&self, demands: &Demands) -> Result<(Vec<Record>, check::Report)> {
        for ((name, fenced), cell) in self.resources.tally() {
            let (acknowledged, present) = (cell.acknowledged, cell.value);
            if acknowledged > 0 {
                self.note("lab", What::Tally { name, fenced, acknowledged, present });
            }
        }
        let records = workload::load(&self.file)?;
        let report = check::check(&records, demands);
        Ok((records, report))
    }

    fn end(self, verdict: Verdict, found: String, shown: Shown) -> Act {
        let act = Act {
            cure: self.cure,
            heading: self.heading,
            began: self.began,
            steps: self.steps,
            marks: self.marks,
            verdict,
            found,
            shown,
        };
        self.stage.print(&format!("  ==>  {}: {}", act.word(), act.found));
        act
    }

    pub(super) fn program(&self) -> &Path {
        &self.stage.program
    }

    pub(super) fn history(&self) -> &Path {
        &self.file
    }

    /// The first of so many numbers for claims.
    pub(super) fn claims(&self, count: u64) -> u64 {
        self.claims.fetch_add(count, Ordering::SeqCst)
    }

    pub(super) fn resources(&self) -> SocketAddr {
        self.resources.address
    }

    pub(super) fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    pub(super) fn faults(&self) -> Arc<AtomicU64> {
        self.faults.clone()
    }
}

/// The judge's sentence in the words of the story, which knows its clients by one letter.
fn plain(sentence: &str) -> String {
    sentence.replace("/1 (claim", " (claim").replace("/1 ", " ")
}
