//! Many names at once, shown side by side.

use crate::backend::{LockView, Name};
use crate::error::{Error, ErrorKind, Result};
use futures_util::{StreamExt, TryStreamExt, stream};

/// How many names are asked for at once: enough to hide the way to the store, and no burst that
/// others would feel.
pub(crate) const AT_ONCE: usize = 32;

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
    let views = stream::iter(names.into_iter().map(show)).buffered(AT_ONCE);
    let views: Vec<LockView> = views.try_collect().await?;
    let busy = |view: &LockView| !view.holders.is_empty() || !view.waiters.is_empty();
    Ok(views.into_iter().filter(busy).collect())
}

/// What is given as the end of a page, and is none.
pub(crate) fn no_page() -> Error {
    let message = "this is not where a page of the list ended: give what the page before gave";
    Error::new(ErrorKind::Config, message)
}
