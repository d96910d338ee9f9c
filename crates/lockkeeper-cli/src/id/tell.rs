//! `id inspect` and `id range`: what an id tells, and which ids a day has.

use super::arguments::{InspectArguments, KindWord, OfKind, RangeArguments};
use super::{give, terms};
use crate::exit::{self, Failure};
use crate::text::span;
use crate::{json, output};
use lockkeeper::id::{Kind, beginning_of, utc};
use serde::Serialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use ulid::Ulid;
use uuid::Uuid;

/// What an id tells of itself.
#[derive(Debug, Default, Serialize)]
struct Told {
    id: String,
    kind: String,
    /// The number alone, without prefix and check digit.
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<String>,
    time: Option<String>,
    worker: Option<u32>,
    sequence: Option<String>,
    #[serde(skip)]
    moment: Option<SystemTime>,
    /// The kind for people.
    #[serde(skip)]
    shown: Option<String>,
}

pub(crate) async fn inspect(asked: &InspectArguments) -> Result<u8, Failure> {
    let told = told(asked).await?;
    output::print(if asked.json { json::line(&told) } else { portrait(&told) })?;
    Ok(exit::FINE)
}

async fn told(asked: &InspectArguments) -> Result<Told, Failure> {
    let id = &asked.id;
    let kind = match (&asked.of.kind, &asked.of.key) {
        (_, Some(key)) => Some(of_key(&asked.of, key).await?),
        (Some(word), None) => terms::named(&asked.of, *word)?,
        (None, None) => None,
    };
    if let Some(kind) = kind {
        return Ok(of_number(id, &kind)?);
    }
    let found = match asked.of.kind {
        Some(KindWord::Uuid4 | KindWord::Uuid7) => of_uuid(id),
        Some(_) => of_ulid(id),
        None => of_uuid(id).or_else(|| of_ulid(id)),
    };
    found.ok_or_else(|| match id.bytes().all(|byte| byte.is_ascii_digit()) {
        true if asked.of.kind.is_none() && !id.is_empty() => Failure::usage(format!(
            "{id} is a number, which does not tell of what kind it is: say --kind snowflake, \
             --kind dated or another, with its options, or --key for what the store has on record"
        )),
        _ => Failure::usage(format!("{id:?} is no id: neither a UUID, nor a ULID, nor a number")),
    })
}

async fn of_key(asked: &OfKind, key: &str) -> Result<Kind, Failure> {
    // Refuses options that would be ignored.
    terms::named(asked, KindWord::Ulid)?;
    let keeper = crate::store::open(&asked.store.url()?).await?;
    give::kind_of(&keeper, key).await
}

fn of_number(text: &str, kind: &Kind) -> lockkeeper::Result<Told> {
    let inspection = kind.inspect(text)?;
    let number = inspection.id.to_string();
    Ok(Told {
        id: text.to_owned(),
        kind: kind.to_string(),
        number: (number != text).then_some(number),
        time: inspection.time.map(utc),
        worker: inspection.worker,
        sequence: inspection.sequence.map(|sequence| sequence.to_string()),
        moment: inspection.time,
        shown: Some(terms::shown(kind)),
    })
}

fn of_uuid(text: &str) -> Option<Told> {
    let uuid = Uuid::try_parse(text).ok()?;
    let moment = uuid.get_timestamp().and_then(|stamp| {
        let (seconds, nanos) = stamp.to_unix();
        UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
    });
    let kind = format!("uuid{}", uuid.get_version_num());
    Some(Told { id: text.to_owned(), kind, time: moment.map(utc), moment, ..Told::default() })
}

fn of_ulid(text: &str) -> Option<Told> {
    // Digits alone are as likely to be a number.
    let ulid = Ulid::from_string(text).ok().filter(|_| text.len() == 26)?;
    let moment = UNIX_EPOCH.checked_add(Duration::from_millis(ulid.timestamp_ms()));
    let (id, kind) = (text.to_owned(), "ulid".to_owned());
    Some(Told { id, kind, time: moment.map(utc), moment, ..Told::default() })
}

fn portrait(told: &Told) -> String {
    let time = told.time.as_ref().zip(told.moment).map(|(time, moment)| {
        let now = SystemTime::now();
        match (now.duration_since(moment), moment.duration_since(now)) {
            (Ok(ago), _) => format!("{time}, {} ago", span(ago)),
            (_, Ok(ahead)) => format!("{time}, in {}", span(ahead)),
            _ => time.clone(),
        }
    });
    let lines = [
        ("kind", Some(told.shown.as_ref().unwrap_or(&told.kind).clone())),
        ("number", told.number.clone()),
        ("time", time),
        ("worker", told.worker.map(|worker| worker.to_string())),
        ("sequence", told.sequence.clone()),
    ];
    let lines = lines.into_iter().filter_map(|(name, value)| Some((name, value?)));
    lines.map(|(name, value)| format!("{name:<8}  {value}\n")).collect()
}

#[derive(Debug, Serialize)]
struct Bounds<'a> {
    day: &'a str,
    kind: String,
    first: String,
    last: String,
}

pub(crate) async fn range(asked: &RangeArguments) -> Result<u8, Failure> {
    let day = &asked.day;
    let bounds = match (&asked.of.kind, &asked.of.key) {
        (_, Some(key)) => numbers(day, &of_key(&asked.of, key).await?)?,
        (Some(word), None) => match terms::named(&asked.of, *word)? {
            Some(kind) => numbers(day, &kind)?,
            None => random(day, *word)?,
        },
        (None, None) => {
            return Err(Failure::usage("of which ids? Say --kind with its options, or --key"));
        }
    };
    output::print(match asked.json {
        true => json::line(&bounds),
        false => format!("{}\n{}\n", bounds.first, bounds.last),
    })?;
    Ok(exit::FINE)
}

fn numbers<'a>(day: &'a str, kind: &Kind) -> lockkeeper::Result<Bounds<'a>> {
    let (first, last) = kind.range(day)?;
    let kind = kind.to_string();
    Ok(Bounds { day, kind, first: first.to_string(), last: last.to_string() })
}

/// Bounds of ids that begin with the millisecond.
fn random(day: &str, word: KindWord) -> Result<Bounds<'_>, Failure> {
    let from = beginning_of(day)?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let last = from + Duration::from_millis(24 * 3_600_000 - 1);
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (first, last) = (millis(from), millis(last));
    let (kind, first, last) = match word {
        KindWord::Uuid7 => {
            let uuid = |time: u64, rest: u8| {
                uuid::Builder::from_unix_timestamp_millis(time, &[rest; 10]).into_uuid().to_string()
            };
            ("uuid7", uuid(first, 0), uuid(last, u8::MAX))
        }
        KindWord::Ulid => {
            let ulid = |time: u64, rest: u128| Ulid::from_parts(time, rest).to_string();
            ("ulid", ulid(first, 0), ulid(last, u128::MAX))
        }
        _ => return Err(Failure::usage("UUIDs of version 4 tell no time")),
    };
    Ok(Bounds { day, kind: kind.to_owned(), first, last })
}
