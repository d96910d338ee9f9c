//! What ids of a key are: what the store has on record, and compares when the key is opened.

use super::dated::{DateFormat, Digits};
use super::layout::Layout;
use crate::error::{Error, ErrorKind, Result};
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

/// What the ids of a key are. `Display` is what the store has on record.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// One number after another, strictly increasing, each by one request.
    Sequence,
    /// Numbers out of reserved ranges, without a request for most.
    Segment,
    /// Numbers of the database's own auto-increment column.
    AutoIncrement,
    /// Time, worker and sequence in 63 bits.
    Snowflake(Layout),
    /// A decimal number in which a person reads the day.
    Dated(DateFormat),
    /// Every n-th number, where several stores share the numbers: which of them this is, and of how many.
    Striped {
        /// Counted from zero.
        stripe: u32,
        /// How many stores.
        of: u32,
    },
}

impl Kind {
    /// The word for it on the command line.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Sequence => "sequence",
            Self::Segment => "segment",
            Self::AutoIncrement => "auto-increment",
            Self::Snowflake(_) => "snowflake",
            Self::Dated(_) => "dated",
            Self::Striped { .. } => "striped",
        }
    }

    /// Whether ids have the number of a worker in them, which is leased.
    pub fn has_workers(&self) -> bool {
        match self {
            Self::Snowflake(_) => true,
            Self::Dated(format) => format.digits() == Digits::Worker19,
            _ => false,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Self::Snowflake(layout) => write!(f, " {layout} {}", layout.epoch_ms()),
            Self::Dated(format) => write!(f, " {format}"),
            Self::Striped { stripe, of } => write!(f, " {stripe}/{of}"),
            _ => Ok(()),
        }
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            let message = format!("{text:?} is no kind of ids that this version knows");
            Error::new(ErrorKind::Store, message)
        };
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let kind = match word {
            "sequence" => Self::Sequence,
            "segment" => Self::Segment,
            "auto-increment" => Self::AutoIncrement,
            "snowflake" => Self::Snowflake(snowflake(rest).ok_or_else(bad)?),
            "dated" => Self::Dated(dated(rest).ok_or_else(bad)?),
            "striped" => {
                let (stripe, of) = rest.split_once('/').ok_or_else(bad)?;
                let (stripe, of) = (stripe.parse().ok(), of.parse().ok());
                let (Some(stripe), Some(of)) = (stripe, of) else { return Err(bad()) };
                Self::Striped { stripe, of }
            }
            _ => return Err(bad()),
        };
        // What is read is what was written, or it was written by another version.
        if kind.to_string() == text { Ok(kind) } else { Err(bad()) }
    }
}

fn snowflake(text: &str) -> Option<Layout> {
    let (layout, epoch) = text.split_once(' ')?;
    let epoch = UNIX_EPOCH.checked_add(Duration::from_millis(epoch.parse().ok()?))?;
    layout.parse::<Layout>().ok()?.since(epoch).ok()
}

fn dated(text: &str) -> Option<DateFormat> {
    let mut words = text.split(' ');
    let digits: Digits = words.next()?.parse().ok()?;
    let mut format = DateFormat::new(digits).offset(words.next()?).ok()?;
    for word in words {
        format = match word {
            "check" => format.check_digit(),
            prefix => format.prefix(prefix).ok()?,
        };
    }
    Some(format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_record_is_read_back() {
        let dated = DateFormat::new(Digits::Second16).offset("-03:30").unwrap();
        for kind in [
            Kind::Sequence,
            Kind::Segment,
            Kind::AutoIncrement,
            Kind::Snowflake(Layout::default()),
            Kind::Snowflake(Layout::javascript().since(UNIX_EPOCH).unwrap()),
            Kind::Dated(dated.clone()),
            Kind::Dated(dated.clone().prefix("A-B").unwrap()),
            Kind::Dated(dated.prefix("checked").unwrap().check_digit()),
            Kind::Striped { stripe: 1, of: 3 },
        ] {
            let text = kind.to_string();
            assert_eq!(text.parse::<Kind>().unwrap(), kind, "{text}");
        }
        for bad in ["", "guess", "snowflake", "snowflake 41/10/12 x", "sequence 1", "striped 1"] {
            assert!(bad.parse::<Kind>().is_err(), "{bad}");
        }
    }

    #[test]
    fn records_are_pinned() {
        assert_eq!(
            Kind::Snowflake(Layout::default()).to_string(),
            "snowflake 41/10/12 1735689600000"
        );
        let format = DateFormat::new(Digits::Second19).prefix("ORD").unwrap().check_digit();
        assert_eq!(Kind::Dated(format).to_string(), "dated second19 +00:00 ORD check");
    }
}
