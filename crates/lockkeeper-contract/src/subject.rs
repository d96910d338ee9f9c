//! How the suite reaches a store.

use futures_util::future::BoxFuture;
use lockkeeper::Result;
use lockkeeper::backend::Backend;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

type Open = Arc<dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Backend>>> + Send + Sync>;

/// A store under test. Clones refer to the same store.
#[derive(Clone)]
pub struct Subject {
    label: String,
    open: Open,
    crossing: Option<Crossing>,
    /// The prefix of every name of this run.
    namespace: Arc<str>,
    /// How many cases were given a prefix.
    cases: Arc<AtomicUsize>,
}

/// What another process needs to reach the store.
#[derive(Clone)]
#[cfg_attr(not(unix), allow(dead_code, reason = "processes are commanded on unix only"))]
pub(crate) struct Crossing {
    pub(crate) url: String,
    pub(crate) taker: PathBuf,
}

impl Subject {
    /// The store that [`lockkeeper::open`] finds at `url`, opened again for every keeper; `taker`
    /// is the path of a program made with [`taker::main`](crate::taker::main).
    ///
    /// `memory:` is a new store at every opening, so it cannot be a subject by URL: use
    /// [`from_fn`](Self::from_fn).
    pub fn url(url: &str, taker: impl Into<PathBuf>) -> Self {
        let label = url.split(':').next().unwrap_or(url).to_owned();
        let address = url.to_owned();
        let open = move || {
            let address = address.clone();
            async move { lockkeeper::open(&address).await }
        };
        Self::from_fn(&label, open).across_processes(url, taker)
    }

    /// A store that `open` returns handles to: all of them must refer to the same store.
    pub fn from_fn<F>(label: &str, open: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Arc<dyn Backend>>> + Send + 'static,
    {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let namespace = format!("contract/{}-{:x}", std::process::id(), since_epoch.as_nanos());
        Self {
            label: label.to_owned(),
            open: Arc::new(move || Box::pin(open())),
            crossing: None,
            namespace: namespace.into(),
            cases: Arc::default(),
        }
    }

    /// Calls the subject `label` in the names of trials.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        label.clone_into(&mut self.label);
        self
    }

    /// Lets other processes reach the store: `taker` is a program made with
    /// [`taker::main`](crate::taker::main), and `url` is what it opens.
    #[must_use]
    pub fn across_processes(mut self, url: &str, taker: impl Into<PathBuf>) -> Self {
        self.crossing = Some(Crossing { url: url.to_owned(), taker: taker.into() });
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.label
    }

    pub(crate) async fn open(&self) -> Result<Arc<dyn Backend>> {
        (self.open)().await
    }

    #[cfg_attr(not(unix), allow(dead_code, reason = "processes are commanded on unix only"))]
    pub(crate) fn crossing(&self) -> Option<&Crossing> {
        self.crossing.as_ref()
    }

    /// A prefix for the names of one case, so that cases that run at once do not collide.
    pub(crate) fn prefix(&self) -> String {
        format!("{}/{}/", self.namespace, self.cases.fetch_add(1, Ordering::Relaxed))
    }
}

/// Without the URL, which may contain a password.
impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("label", &self.label).finish_non_exhaustive()
    }
}
