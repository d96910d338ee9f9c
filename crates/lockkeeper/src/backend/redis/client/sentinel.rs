//! Whom the sentinels take for the primary.
//!
//! A sentinel that is cut off from the others goes on naming the primary of before, which may be
//! alive. So no answer counts alone:
//!
//! - More than half of the sentinels in the URL must answer. A failover takes a majority of them, so
//!   any majority has one that has heard of it, or is about to.
//! - Of what they say, the latest failover counts: the highest config epoch, if only one primary is
//!   named with it.
//! - Where epochs do not decide (two primaries with the same, or a sentinel that does not tell), more
//!   than half of those in the URL must name the same primary.
//!
//! ```text
//!   3 sentinels, a failover from a to b         answers          decided
//!   one cut off before it                       a/3              nothing: 1 of 3
//!   one more answers                            a/3  b/4         b: 2 of 3, the latest epoch
//!   proxies that tell no epoch                  a/0  b/0         nothing yet
//!                                               a/0  b/0  b/0    b: 2 of 3 name it
//! ```
//!
//! With fewer answers nothing is known: a connection that is there is kept, a new one is not made.
//! More than half of those that answer was rejected: it may be one, and that the wrong one.

use super::topology::Host;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{ErrorKind as Cause, Pipeline, RedisError, RedisResult, Value};
use std::collections::HashMap;

/// What one sentinel says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) primary: Host,
    /// The number of the failover that it knows of; zero also where it does not tell.
    pub(super) epoch: u64,
}

/// What their answers come to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision<'a> {
    Primary(&'a Host),
    /// Those that have not answered yet may decide it.
    Open,
}

/// What is known after these answers, when `asked` sentinels were asked.
pub(super) fn decide(answers: &[Answer], asked: usize) -> Decision<'_> {
    let majority = asked / 2 + 1;
    if answers.len() < majority {
        return Decision::Open;
    }
    let latest = answers.iter().map(|answer| answer.epoch).max().unwrap_or_default();
    let mut named =
        answers.iter().filter(|answer| answer.epoch == latest).map(|answer| &answer.primary);
    let Some(first) = named.next() else { return Decision::Open };
    if latest > 0 && named.all(|other| other == first) {
        return Decision::Primary(first);
    }
    let voters = |host: &Host| answers.iter().filter(|answer| answer.primary == *host).count();
    let chosen = answers.iter().map(|answer| &answer.primary).find(|host| voters(host) >= majority);
    chosen.map_or(Decision::Open, Decision::Primary)
}

/// Asks a sentinel for the primary of that name. The epoch comes from a second command, whose
/// failure is forgiven: a proxy that only speaks like a sentinel, or a user with few rights, names
/// the primary and no more.
pub(super) async fn ask(
    connection: &mut MultiplexedConnection,
    primary: &str,
) -> RedisResult<Answer> {
    let mut ask = Pipeline::with_capacity(2);
    ask.cmd("SENTINEL").arg("get-master-addr-by-name").arg(primary);
    ask.cmd("SENTINEL").arg("master").arg(primary);
    let mut answers = connection.req_packed_commands(&ask, 0, 2).await?.into_iter();
    let (named, known) = (answers.next().unwrap_or(Value::Nil), answers.next());
    let host = redis::from_redis_value::<Option<Host>>(named.extract_error()?)?;
    let unknown = || no_primary("the sentinels know no primary of that name", None);
    let primary = host.ok_or_else(unknown)?;
    let known = known.and_then(|known| {
        redis::from_redis_value::<HashMap<String, String>>(known.extract_error().ok()?).ok()
    });
    let epoch = known.and_then(|known| known.get("config-epoch")?.parse().ok());
    Ok(Answer { primary, epoch: epoch.unwrap_or_default() })
}

/// The error for a primary that cannot be told.
pub(super) fn no_primary(why: &'static str, details: Option<String>) -> RedisError {
    match details {
        Some(details) => RedisError::from((Cause::MasterNameNotFoundBySentinel, why, details)),
        None => RedisError::from((Cause::MasterNameNotFoundBySentinel, why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(answers: &[(&str, u64)]) -> Vec<Answer> {
        let answer = |(host, epoch): &(&str, u64)| Answer {
            primary: ((*host).to_owned(), 6379),
            epoch: *epoch,
        };
        answers.iter().map(answer).collect()
    }

    fn named(answers: &[(&str, u64)], asked: usize) -> Option<String> {
        match decide(&said(answers), asked) {
            Decision::Primary((host, _)) => Some(host.clone()),
            Decision::Open => None,
        }
    }

    /// A sentinel that was cut off names the primary of before, with a smaller epoch.
    #[test]
    fn the_latest_failover_counts_whoever_tells_of_it_first() {
        assert_eq!(named(&[("old", 3), ("new", 4)], 3).as_deref(), Some("new"));
        assert_eq!(named(&[("new", 4), ("old", 3), ("old", 3)], 3).as_deref(), Some("new"));
        assert_eq!(named(&[("one", 1)], 1).as_deref(), Some("one"));
    }

    /// A minority may be on the wrong side of a partition, all of it.
    #[test]
    fn fewer_than_a_majority_of_those_asked_decide_nothing() {
        assert_eq!(named(&[("old", 3)], 3), None);
        assert_eq!(named(&[("old", 3)], 2), None);
        assert_eq!(named(&[("a", 3), ("a", 3)], 5), None);
        assert_eq!(named(&[], 1), None);
    }

    /// Proxies that only speak like a sentinel tell no epoch.
    #[test]
    fn where_epochs_do_not_decide_a_majority_of_those_asked_does() {
        assert_eq!(named(&[("old", 0), ("new", 0)], 3), None);
        assert_eq!(named(&[("old", 0), ("new", 0), ("new", 0)], 3).as_deref(), Some("new"));
        assert_eq!(named(&[("old", 2), ("new", 2)], 3), None);
        assert_eq!(named(&[("a", 2), ("b", 2), ("b", 1)], 3).as_deref(), Some("b"));
        assert_eq!(named(&[("a", 0), ("a", 0), ("b", 0), ("b", 0)], 4), None);
    }
}
