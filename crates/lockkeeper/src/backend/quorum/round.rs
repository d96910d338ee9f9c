//! One question to many nodes at once.
//!
//! The question is decided as soon as enough have answered. The answers of the others are still of
//! interest: a claim that a slow node took must be kept in step, or undone. With five nodes there are
//! two of those each time, so it must cost nothing to wait for them.
//!
//! ```text
//!   caller                     a task on the keeper's thread, where the connections live
//!   run(work) ───────────────► ask 1 2 3 4 5
//!                              answers of 2, 4, 1
//!   outcome   ◄── tell ─────── a majority
//!                              answers of 5, 3     the rest, by the same task
//! ```
//!
//! To poll the questions in the caller's task was rejected: each question and each answer then crosses
//! to the thread of the connections and back, and what is left must be handed over. So was a task on the
//! caller's runtime: its threads wake each other for every question and every answer.

use super::node::Node;
use super::nodes::Nodes;
use crate::backend::Moment;
use crate::error::{Error, ErrorKind, Result};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::sync::Arc;
use tokio::sync::oneshot;

/// What is left to do when the outcome is known.
#[derive(Default)]
pub(super) struct Rest(Vec<BoxFuture<'static, ()>>);

impl Rest {
    /// Does it.
    pub(super) async fn done(self) {
        join_all(self.0).await;
    }
}

/// Does `work` in a task of its own and returns its outcome as soon as that is known; the same task then
/// does the rest.
pub(super) async fn run<T: Send + 'static>(
    nodes: &Nodes,
    work: impl Future<Output = (Result<T>, Rest)> + Send + 'static,
) -> Result<T> {
    let (tell, told) = oneshot::channel();
    let work = async move {
        let (outcome, rest) = work.await;
        // Keepers finish what they begin, so that somebody is there to be told.
        let _ = tell.send(outcome);
        rest.done().await;
    };
    nodes.background().spawn(work);
    told.await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Unavailable, "the background thread is gone: connect again"))
    })
}

/// What nodes were asked and have not answered.
pub(super) struct Round<T> {
    under_way: FuturesUnordered<BoxFuture<'static, (usize, T)>>,
    /// The nodes that have not answered.
    silent: Vec<usize>,
    /// Until when answers count; `None` once that has passed.
    limit: Option<BoxFuture<'static, ()>>,
}

impl<T: Send + 'static> Round<T> {
    /// Answers count until `limit`.
    pub(super) fn new(limit: Moment) -> Self {
        let limit = Some(limit.reached().boxed());
        Self { under_way: FuturesUnordered::new(), silent: Vec::new(), limit }
    }

    /// Asks the node with this number.
    pub(super) fn ask(
        &mut self,
        number: usize,
        question: impl Future<Output = T> + Send + 'static,
    ) {
        self.silent.push(number);
        self.under_way.push(question.map(move |answer| (number, answer)).boxed());
    }

    /// The next answer; `None` when there are no more, or the limit has passed.
    pub(super) async fn next(&mut self) -> Option<(usize, T)> {
        let answer = match &mut self.limit {
            Some(limit) => tokio::select! {
                biased;
                answer = self.under_way.next() => answer,
                () = limit => {
                    self.limit = None;
                    None
                }
            },
            None => self.under_way.next().now_or_never().flatten(),
        };
        if let Some((number, _)) = &answer {
            self.silent.retain(|silent| silent != number);
        }
        answer
    }

    /// The nodes that have not answered.
    pub(super) fn unanswered(&self) -> &[usize] {
        &self.silent
    }

    /// Leaves it to `rest` to wait for the others, and to tell `late` of each.
    pub(super) fn finish(
        mut self,
        nodes: Arc<[Arc<Node>]>,
        rest: &mut Rest,
        late: impl Fn(usize, T) + Send + 'static,
    ) {
        if self.under_way.is_empty() {
            return;
        }
        rest.0.push(Box::pin(async move {
            while let Some((number, answer)) = self.next().await {
                late(number, answer);
            }
            for number in &self.silent {
                nodes[*number].silence.begins();
            }
            while let Some((number, answer)) = self.under_way.next().await {
                late(number, answer);
            }
        }));
    }
}
