//! One question to many nodes at once.
//!
//! The question is decided as soon as enough have answered. The answers of the others are still of
//! interest (a claim that a slow node took must be kept in step, or undone), and are waited for in the
//! background.

use super::node::Node;
use crate::backend::{Background, Moment};
use crate::completing::Entered;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::sync::Arc;

/// How often the sockets are looked at once more after the decision, before the rest is handed to the
/// background. Answers of healthy nodes arrive together, and to hand over costs more than to look.
const GLANCES: usize = 3;

/// What nodes were asked and have not answered.
///
/// Questions are polled by whoever asks, and later by the background; so their timers are those of the
/// background from the start. Several keepers may share one quorum, and those of a keeper that is gone
/// cannot be polled any more.
pub(super) struct Round<T> {
    background: Background,
    under_way: FuturesUnordered<BoxFuture<'static, (usize, T)>>,
    /// The nodes that have not answered.
    silent: Vec<usize>,
    limit: Moment,
}

impl<T: Send + 'static> Round<T> {
    /// Answers count until `limit`.
    pub(super) fn new(background: &Background, limit: Moment) -> Self {
        let background = background.clone();
        Self { background, under_way: FuturesUnordered::new(), silent: Vec::new(), limit }
    }

    /// Asks the node with this number.
    pub(super) fn ask(
        &mut self,
        number: usize,
        question: impl Future<Output = T> + Send + 'static,
    ) {
        self.silent.push(number);
        let question = question.map(move |answer| (number, answer));
        self.under_way.push(match self.background.handle() {
            Ok(home) => Entered::new(question, home).boxed(),
            // Without a thread to be had the background does nothing at all.
            Err(_) => question.boxed(),
        });
    }

    /// The next answer; `None` when there are no more, or the limit has passed.
    pub(super) async fn next(&mut self) -> Option<(usize, T)> {
        let limit = self.limit;
        let answer = tokio::select! {
            biased;
            answer = self.under_way.next() => answer,
            () = limit.reached() => None,
        };
        self.answered(answer)
    }

    /// The next answer if it is there already, or arrives with those that are.
    pub(super) async fn glance(&mut self) -> Option<(usize, T)> {
        for glance in 0..=GLANCES {
            if let Some(answer) = self.under_way.next().now_or_never() {
                return self.answered(answer);
            }
            if glance < GLANCES {
                tokio::task::yield_now().await;
            }
        }
        None
    }

    fn answered(&mut self, answer: Option<(usize, T)>) -> Option<(usize, T)> {
        if let Some((number, _)) = &answer {
            self.silent.retain(|silent| silent != number);
        }
        answer
    }

    /// The nodes that have not answered.
    pub(super) fn unanswered(&self) -> &[usize] {
        &self.silent
    }

    /// Waits for the rest in the background, and tells `late` of each.
    pub(super) fn finish(
        mut self,
        nodes: Arc<[Arc<Node>]>,
        late: impl Fn(usize, T) + Send + 'static,
    ) {
        if self.under_way.is_empty() {
            return;
        }
        let background = self.background.clone();
        background.spawn(async move {
            while let Some((number, answer)) = self.next().await {
                late(number, answer);
            }
            for number in &self.silent {
                nodes[*number].silence.begins();
            }
            while let Some((number, answer)) = self.under_way.next().await {
                late(number, answer);
            }
        });
    }
}
