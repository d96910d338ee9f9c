//! What an operator should know of each node.

use super::nodes::Nodes;
use crate::backend::{Finding, Subject};
use crate::error::Result;
use futures_util::future::join_all;
use std::time::Duration;

/// A node that does not answer is one of the findings: a minority may be away.
pub(super) async fn checkup(nodes: &Nodes) -> Vec<Finding> {
    let limit = nodes.options.timeout.max(Duration::from_millis(50)) * 20;
    let asked = nodes.all.iter().map(|node| async move {
        let found = match tokio::time::timeout(limit, node.backend.checkup()).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => vec![away(&error.to_string())],
            Err(_) => vec![away("it does not answer")],
        };
        found.into_iter().map(|finding| finding.at(&*node.shown)).collect::<Vec<_>>()
    });
    join_all(asked).await.into_iter().flatten().collect()
}

fn away(why: &str) -> Finding {
    let advice = "see that it runs: a lock needs a majority of the nodes";
    Finding::problem(Subject::Connection, why, advice)
}

/// As long as the slowest node of the fastest majority took: a vote takes no longer.
pub(super) async fn round_trips(nodes: &Nodes, count: usize) -> Result<Vec<Duration>> {
    let asked = nodes.all.iter().map(|node| node.backend.round_trips(count));
    let mut answered = Vec::new();
    let mut failure = None;
    for answer in join_all(asked).await {
        match answer {
            Ok(took) => answered.push(took),
            Err(error) => failure = Some(error),
        }
    }
    let majority = nodes.majority();
    if let (true, Some(error)) = (answered.len() < majority, failure) {
        return Err(error);
    }
    let shortest = answered.iter().map(Vec::len).min().unwrap_or(0);
    let of_majority = |at: usize| {
        let mut took: Vec<_> = answered.iter().map(|node| node[at]).collect();
        took.sort();
        took[majority.min(took.len()) - 1]
    };
    Ok((0..shortest).map(of_majority).collect())
}
