//! What an operator should know of the cluster: version, alarms, members, leader.

use super::client::Client;
use super::keys::probe_key;
use super::protocol::{
    MemberListRequest, MemberListResponse, RangeResponse, StatusRequest, StatusResponse, path,
};
use super::requests;
use crate::backend::{Finding, Moment, Subject};
use crate::error::{ErrorKind, Result};
use std::time::Duration;

pub(super) async fn checkup(client: &Client) -> Result<Vec<Finding>> {
    let mut found = Vec::new();
    let status: Result<StatusResponse> = client.call(path::STATUS, &StatusRequest {}).await;
    match status {
        Ok(status) => found.extend(of_status(&status)),
        Err(error) if is_refused(error.kind()) => found.push(not_told("its status")),
        Err(error) => return Err(error),
    }
    found.push(Finding::fine(
        Subject::Persistence,
        "each grant is on the disks of a majority of members before its answer",
    ));
    found.push(Finding::fine(Subject::Eviction, "etcd throws nothing away"));
    let members: Result<MemberListResponse> =
        client.call(path::MEMBER_LIST, &MemberListRequest { linearizable: false }).await;
    match members {
        Ok(members) => found.push(of_members(&members)),
        Err(error) if is_refused(error.kind()) => found.push(not_told("its members")),
        Err(error) => return Err(error),
    }
    found.push(Finding::fine(
        Subject::Clock,
        "etcd tells nobody the time, and no lock depends on it",
    ));
    Ok(found)
}

/// Reads that go through the leader, as the requests of locks do.
pub(super) async fn round_trips(
    client: &Client,
    prefix: &str,
    count: usize,
) -> Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let sent = Moment::now();
        let _: RangeResponse = client.call(path::RANGE, &requests::one(probe_key(prefix))).await?;
        took.push(Moment::now().since(sent));
    }
    Ok(took)
}

fn is_refused(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Denied | ErrorKind::Store | ErrorKind::Unsupported)
}

fn not_told(what: &str) -> Finding {
    let text = format!("this user may not ask etcd for {what}");
    Finding::warning(Subject::Version, text, "ask as another user, or with `etcdctl`")
}

fn of_status(status: &StatusResponse) -> Vec<Finding> {
    let size = status.db_size / (1 << 20);
    let text = format!("etcd {}, {size} MiB of data", status.version);
    let mut found = vec![Finding::fine(Subject::Version, text)];
    if !status.errors.is_empty() {
        found.push(Finding::problem(
            Subject::Connection,
            format!("the member is not well: {}", status.errors.join(", ")),
            "see `etcdctl alarm list`; out of space, compact and defragment",
        ));
    }
    if status.leader == 0 {
        found.push(Finding::problem(
            Subject::Replication,
            "there is no leader, so that nothing can be written",
            "see that a majority of the members is up and reach each other",
        ));
    }
    found
}

fn of_members(members: &MemberListResponse) -> Finding {
    let voters = members.members.iter().filter(|member| !member.is_learner).count();
    match voters {
        0 | 1 => Finding::warning(
            Subject::Replication,
            "one member: while it is down nothing can be locked",
            "run three members or five",
        ),
        number if number % 2 == 0 => Finding::warning(
            Subject::Replication,
            format!("{number} members, which bear no more failures than {} would", number - 1),
            "run an odd number of members",
        ),
        number => Finding::fine(
            Subject::Replication,
            format!("{number} members, of which {} may be down", (number - 1) / 2),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::Member;
    use super::*;
    use crate::backend::Verdict;

    #[test]
    fn members_are_counted_without_learners() {
        let members = |voters: usize, learners: usize| {
            let learner = |is_learner| Member { id: 1, name: String::new(), is_learner };
            let voters = std::iter::repeat_n(learner(false), voters);
            let members = voters.chain(std::iter::repeat_n(learner(true), learners)).collect();
            of_members(&MemberListResponse { members })
        };
        assert_eq!(members(1, 2).verdict, Verdict::Warning);
        assert_eq!(members(4, 0).verdict, Verdict::Warning);
        assert_eq!(members(3, 1).verdict, Verdict::Fine);
        assert!(members(5, 0).text.contains("2 may be down"));
    }

    #[test]
    fn an_alarm_and_a_missing_leader_are_problems() {
        let well = StatusResponse { version: "3.5.9".into(), leader: 7, ..Default::default() };
        assert!(of_status(&well).iter().all(|finding| finding.verdict == Verdict::Fine));
        let full = StatusResponse { errors: vec!["NOSPACE".into()], ..well.clone() };
        assert!(of_status(&full).iter().any(|finding| finding.verdict == Verdict::Problem));
        let headless = StatusResponse { leader: 0, ..well };
        assert!(of_status(&headless).iter().any(|finding| finding.verdict == Verdict::Problem));
    }
}
