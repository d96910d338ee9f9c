//! One cell of the comparison: what was measured, or why nothing was.

use serde::{Deserialize, Serialize};

/// What one row has in one column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cell {
    /// A figure, in the unit of its column.
    Figure(f64),
    /// What it can do, in words.
    Words(Vec<String>),
    /// A promise that was kept in a run with faults; says how much the run saw.
    Held(String),
    /// A promise that was broken in a run with faults; says how.
    Broken(String),
    /// There is no such thing here; says why.
    NotApplicable(String),
    /// It could not be measured; says why.
    Unknown(String),
}

impl Cell {
    /// The figure, if it is one.
    #[must_use]
    pub fn figure(&self) -> Option<f64> {
        match self {
            Self::Figure(figure) => Some(*figure),
            _ => None,
        }
    }

    /// What was measured, or unknown with the reason.
    pub(crate) fn of(measured: anyhow::Result<f64>) -> Self {
        match measured {
            Ok(figure) if figure.is_finite() && figure >= 0.0 => Self::Figure(figure),
            Ok(figure) => Self::Unknown(format!("{figure} is no figure")),
            Err(error) => Self::unknown(&error),
        }
    }

    pub(crate) fn unknown(error: &anyhow::Error) -> Self {
        let text = format!("{error:#}");
        Self::Unknown(text.lines().next().unwrap_or_default().to_owned())
    }

    pub(crate) fn not_applicable(why: &str) -> Self {
        Self::NotApplicable(why.to_owned())
    }
}
