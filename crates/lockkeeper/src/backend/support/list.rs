//! Many names at once, shown side by side.

use super::pace::Pace;
use crate::backend::{LockView, Name};
use crate::error::{Error, ErrorKind, Result};
use futures_util::future::join_all;
use std::time::Instant;

/// The most names that are asked for at once: enough to hide a long way to the store.
const AT_ONCE: usize = 32;

/// Shows every name that is held or waited for, in the order given. A name of which `show` says
/// `foreign` is somebody else's: it is left out, with a warning, and hides no other.
pub(crate) async fn shown<F>(
    names: impl IntoIterator<Item = Name, IntoIter: Send> + Send,
    foreign: ErrorKind,
    show: impl Fn(Name) -> F + Send,
) -> Result<Vec<LockView>>
where
    F: Future<Output = Result<LockView>> + Send,
{
    let show = move |name: Name| {
        let shown = show(name.clone());
        async move {
            match shown.await {
                Err(error) if error.kind() == foreign => {
                    tracing::warn!(%name, %error, "left out of the list: it is no lock of ours");
                    Ok(LockView::new(name))
                }
                shown => shown,
            }
        }
    };
    let mut views = asked(names, show).await?;
    views.retain(|view| !view.holders.is_empty() || !view.waiters.is_empty());
    Ok(views)
}

/// The answers to many questions, in their order; as many at once as others do not feel.
pub(crate) async fn asked<Q, T, F>(
    questions: impl IntoIterator<Item = Q, IntoIter: Send> + Send,
    ask: impl Fn(Q) -> F + Send,
) -> Result<Vec<T>>
where
    F: Future<Output = Result<T>> + Send,
    T: Send,
{
    let (mut questions, mut pace) = (questions.into_iter(), Pace::new(1, AT_ONCE));
    let mut answers = Vec::new();
    loop {
        let some: Vec<F> = questions.by_ref().take(pace.size()).map(&ask).collect();
        if some.is_empty() {
            return Ok(answers);
        }
        let begun = Instant::now();
        for answer in join_all(some).await {
            answers.push(answer?);
        }
        pace.took(begun.elapsed());
    }
}

/// What is given as the end of a page, and is none.
pub(crate) fn no_page() -> Error {
    let message = "this is not where a page of the list ended: give what the page before gave";
    Error::new(ErrorKind::Config, message)
}
