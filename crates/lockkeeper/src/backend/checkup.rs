//! What an operator should know of a store: asked of it by `lockkeeper doctor`, and by programs that
//! check their surroundings when they start.

use std::fmt;
use std::time::{Duration, SystemTime};

/// One thing that was found out about a store, and what to do about it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use lockkeeper::backend::Verdict;
///
/// let keeper = lockkeeper::connect("memory:").await?;
/// for finding in keeper.checkup().await? {
///     assert_ne!(finding.verdict, Verdict::Problem, "{finding}");
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What it is about.
    pub subject: Subject,
    /// Whether it is as it should be.
    pub verdict: Verdict,
    /// What was found, in one line.
    pub text: String,
    /// What to do, in one line; empty where there is nothing to do.
    pub advice: String,
    /// Which of several servers it was found at, without secrets.
    pub node: Option<String>,
}

/// What a [`Finding`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Subject {
    /// Whether the server answers.
    Connection,
    /// Which server it is.
    Version,
    /// What survives a restart of the store.
    Persistence,
    /// Whether the store may throw locks away to make room.
    Eviction,
    /// Whether this server takes writes, and who has copies of them.
    Replication,
    /// The store's clock beside that of this machine.
    Clock,
}

/// How a [`Finding`] is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// As it should be.
    Fine,
    /// Locks work, but there is something to know.
    Warning,
    /// Locks do not work here, or can be lost while everything runs as usual.
    Problem,
}

impl Finding {
    /// Something that is as it should be.
    pub fn fine(subject: Subject, text: impl Into<String>) -> Self {
        Self::new(subject, Verdict::Fine, text, "")
    }

    /// Something to know, and what to do about it.
    pub fn warning(subject: Subject, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(subject, Verdict::Warning, text, advice)
    }

    /// Something that is wrong, and what to do about it.
    pub fn problem(subject: Subject, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(subject, Verdict::Problem, text, advice)
    }

    /// The same of one of several servers, which is shown as `node`.
    #[must_use]
    pub fn at(mut self, node: impl Into<String>) -> Self {
        self.node = Some(node.into());
        self
    }

    fn new(
        subject: Subject,
        verdict: Verdict,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { subject, verdict, text: text.into(), advice: advice.into(), node: None }
    }

    /// The clock of a store that said `store` between `asked` and now, which counts in steps of
    /// `step`.
    ///
    /// No lock depends on the difference: a store counts by its own clock, and holders by theirs.
    pub fn clock(store: SystemTime, asked: SystemTime, step: Duration) -> Self {
        let answered = SystemTime::now();
        let early = asked.duration_since(store).unwrap_or_default().saturating_sub(step);
        let late = store.duration_since(answered).unwrap_or_default();
        let (apart, word) = if early > late { (early, "behind") } else { (late, "ahead of") };
        if apart < CLOCKS_AGREE {
            return Self::fine(Subject::Clock, "agrees with the clock of this machine");
        }
        Self::warning(
            Subject::Clock,
            format!("{}ms {word} the clock of this machine", apart.as_millis()),
            "set both clocks (NTP): no lock depends on it, but dated ids do, and fencing tokens after \
             a move to another store",
        )
    }
}

/// Below this, what messages take on their way says more than the clocks do.
const CLOCKS_AGREE: Duration = Duration::from_millis(500);

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: ", self.verdict, self.subject)?;
        if let Some(node) = &self.node {
            write!(f, "{node}: ")?;
        }
        f.write_str(&self.text)?;
        match self.advice.as_str() {
            "" => Ok(()),
            advice => write!(f, ": {advice}"),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connection => "connection",
            Self::Version => "version",
            Self::Persistence => "persistence",
            Self::Eviction => "eviction",
            Self::Replication => "replication",
            Self::Clock => "clock",
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fine => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_compared_with_the_time_that_the_question_took() {
        let now = SystemTime::now();
        let at = |store, asked| Finding::clock(store, asked, Duration::from_secs(1)).verdict;
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        assert_eq!(at(now, now), Verdict::Fine);
        // It may have said so at any time since it was asked.
        assert_eq!(at(now - minute / 2, now - minute), Verdict::Fine);
        // A clock that counts whole seconds is behind by up to one.
        assert_eq!(at(now - second, now), Verdict::Fine);
        assert_eq!(at(now - minute, now), Verdict::Warning);
        assert_eq!(at(now + minute, now), Verdict::Warning);
        let behind = Finding::clock(now - minute, now, Duration::ZERO);
        assert!(behind.text.starts_with("60000ms behind "), "{behind}");
        assert!(Finding::clock(now + minute, now, Duration::ZERO).text.contains("ahead of"));
    }

    #[test]
    fn a_finding_is_one_line() {
        let finding = Finding::problem(Subject::Eviction, "allkeys-lru", "set noeviction").at("n1");
        assert_eq!(finding.to_string(), "problem: eviction: n1: allkeys-lru: set noeviction");
        assert_eq!(Finding::fine(Subject::Version, "7").to_string(), "ok: version: 7");
    }
}
