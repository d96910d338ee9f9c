//! From words to what ids are made of.

use super::arguments::{BitArguments, DigitArguments, KindWord, LeaseArguments, OfKind};
use crate::exit::Failure;
use lockkeeper::id::{DateFormat, Digits, Kind, Layout, Lease, beginning_of, utc};
use std::time::{Duration, UNIX_EPOCH};

/// What stands before the key of those who name none.
const DEFAULT: &str = "default-";

/// The window of ids without a key: only this program gives them, it does not live long, and the first of
/// a new key comes after a window, where there is a server.
const BRIEF: Duration = Duration::from_secs(2);

pub(crate) fn layout(asked: &BitArguments) -> Result<Layout, Failure> {
    let layout = match asked.layout {
        Some(layout) => layout,
        None if asked.js => Layout::javascript(),
        None => Layout::default(),
    };
    let Some(epoch) = &asked.epoch else { return Ok(layout) };
    let since = if epoch.bytes().all(|byte| byte.is_ascii_digit()) {
        let millis = epoch.parse().ok().map(Duration::from_millis);
        let moment = millis.and_then(|millis| UNIX_EPOCH.checked_add(millis));
        moment.ok_or_else(|| Failure::usage(format!("{epoch:?} is no epoch: 2025-01-01 is one")))?
    } else {
        beginning_of(epoch)?
    };
    Ok(layout.since(since)?)
}

pub(crate) fn format(asked: &DigitArguments) -> Result<DateFormat, Failure> {
    let mut format = DateFormat::new(asked.digits.unwrap_or(Digits::Second19));
    if let Some(offset) = &asked.offset {
        format = format.offset(offset)?;
    }
    if let Some(prefix) = &asked.prefix {
        format = format.prefix(prefix)?;
    }
    Ok(if asked.check_digit { format.check_digit() } else { format })
}

/// How a worker number is leased for ids of this kind and key.
pub(crate) fn lease(asked: &LeaseArguments, kind: &Kind, key: &str) -> Result<Lease, Failure> {
    let mut lease = Lease::default();
    if key.starts_with(DEFAULT) {
        lease.window = Some(BRIEF);
    }
    if let Some(window) = asked.window {
        if !kind.has_workers() {
            let message = format!("--window is for ids with a worker number, not for {kind}");
            return Err(Failure::usage(message));
        }
        if key.starts_with(DEFAULT) {
            return Err(Failure::usage("--window is for ids of a key: add --key NAME"));
        }
        lease.window = Some(window);
    }
    Ok(lease)
}

/// The key of those who name none: one for each kind and its terms, so that none is refused.
pub(crate) fn default_key(kind: &Kind) -> String {
    let usual = match kind {
        Kind::Snowflake(layout) => *layout == Layout::default(),
        Kind::Dated(format) => *format == DateFormat::new(Digits::Second19),
        _ => true,
    };
    let terms = if usual { kind.word().to_owned() } else { kind.to_string() };
    format!("{DEFAULT}{}", terms.replace(' ', "-"))
}

/// What ids are made of, for people.
pub(crate) fn shown(kind: &Kind) -> String {
    match kind {
        Kind::Snowflake(layout) => {
            let epoch = utc(layout.epoch());
            let epoch = epoch.strip_suffix("T00:00:00.000Z").unwrap_or(&epoch);
            format!("{} {layout} since {epoch}", kind.word())
        }
        // The one that has no number of stores says nothing of them.
        Kind::Striped { of: ..2, .. } => kind.word().to_owned(),
        Kind::Striped { stripe, of } => format!("{} {} of {of}", kind.word(), stripe + 1),
        _ => kind.to_string(),
    }
}

/// The kind that was named, with its terms; `None` for those that need no store.
pub(crate) fn named(asked: &OfKind, word: KindWord) -> Result<Option<Kind>, Failure> {
    let BitArguments { layout: bits, js, epoch } = &asked.bits;
    let DigitArguments { digits, offset, prefix, check_digit } = &asked.digits;
    let of_bits = bits.is_some() || *js || epoch.is_some();
    let of_digits = digits.is_some() || offset.is_some() || prefix.is_some() || *check_digit;
    if of_bits && word != KindWord::Snowflake {
        return Err(Failure::usage("--layout, --js and --epoch are for --kind snowflake"));
    }
    if of_digits && word != KindWord::Dated {
        let message = "--digits, --offset, --prefix and --check-digit are for --kind dated";
        return Err(Failure::usage(message));
    }
    Ok(Some(match word {
        KindWord::Uuid4 | KindWord::Uuid7 | KindWord::Ulid => return Ok(None),
        KindWord::Sequence => Kind::Sequence,
        KindWord::Segment => Kind::Segment,
        KindWord::AutoIncrement => Kind::AutoIncrement,
        KindWord::Snowflake => Kind::Snowflake(layout(&asked.bits)?),
        KindWord::Dated => Kind::Dated(format(&asked.digits)?),
        // Of how many stores does not matter for what a number tells.
        KindWord::Striped => Kind::Striped { stripe: 0, of: 1 },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_key_of_its_own() {
        let dated =
            |offset: &str| Kind::Dated(DateFormat::new(Digits::Second19).offset(offset).unwrap());
        let keys = [
            (Kind::Sequence, "default-sequence"),
            (Kind::AutoIncrement, "default-auto-increment"),
            (Kind::Snowflake(Layout::default()), "default-snowflake"),
            (Kind::Snowflake(Layout::javascript()), "default-snowflake-41/6/6-1735689600000"),
            (dated("Z"), "default-dated"),
            (dated("+08:00"), "default-dated-second19-+08:00"),
            (dated("-08:00"), "default-dated-second19--08:00"),
        ];
        for (kind, key) in keys {
            assert_eq!(default_key(&kind), key);
        }
    }
}
