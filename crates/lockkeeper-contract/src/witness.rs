//! An unsynchronised resource that shows whether a lock excluded others.

use crate::verdict::{Outcome, ensure, unknown};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long a visit lasts: long enough that others come meanwhile.
const STAY: Duration = Duration::from_millis(2);

/// Counts the visitors inside, in this process, and adds one to a number in two steps that must not
/// be interleaved.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    inside: AtomicUsize,
    most: AtomicUsize,
    entries: AtomicUsize,
    number: AtomicUsize,
    waited: AtomicUsize,
}

impl Witness {
    /// Records that a visitor found the lock taken.
    pub(crate) fn found_busy(&self) {
        self.waited.fetch_add(1, Ordering::SeqCst);
    }

    /// The critical section.
    pub(crate) async fn visit(&self) {
        let number = self.come_in();
        tokio::time::sleep(STAY).await;
        self.go_out(number);
    }

    /// The critical section, for threads.
    pub(crate) fn visit_blocking(&self) {
        let number = self.come_in();
        std::thread::sleep(STAY);
        self.go_out(number);
    }

    fn come_in(&self) -> usize {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        self.entries.fetch_add(1, Ordering::SeqCst);
        self.number.load(Ordering::SeqCst)
    }

    fn go_out(&self, number: usize) {
        self.number.store(number + 1, Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    /// How often the lock was found taken.
    pub(crate) fn waited(&self) -> usize {
        self.waited.load(Ordering::SeqCst)
    }

    /// The highest number of visitors inside at once.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    pub(crate) fn entries(&self) -> usize {
        self.entries.load(Ordering::SeqCst)
    }

    /// Passes if at most `limit` were ever inside, all `expected` entries happened, and some of
    /// them had to wait.
    pub(crate) fn judge(&self, limit: usize, expected: usize) -> Outcome {
        let (most, entries) = (self.most(), self.entries());
        ensure!(most <= limit, "{most} were inside at once, where {limit} may be");
        ensure!(entries == expected, "{entries} entries, where {expected} were to be");
        let number = self.number.load(Ordering::SeqCst);
        ensure!(limit > 1 || number == entries, "{} updates were lost", entries - number);
        if self.waited() == 0 {
            unknown!("nobody found the lock taken, so nothing kept anybody apart");
        }
        Ok(())
    }
}

/// The same across processes: a directory with a file for each visitor inside, and a number in a
/// file.
#[derive(Debug)]
pub(crate) struct Room(PathBuf);

impl Room {
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path.join("inside"))?;
        Ok(Self(path.to_owned()))
    }

    /// The critical section: returns how many were inside, including this visitor.
    pub(crate) fn visit(&self, visitor: &str) -> io::Result<usize> {
        let mark = self.0.join("inside").join(visitor);
        fs::File::create_new(&mark)?;
        let number = self.number()?;
        let mut inside = fs::read_dir(self.0.join("inside"))?.count();
        std::thread::sleep(STAY);
        inside = inside.max(fs::read_dir(self.0.join("inside"))?.count());
        fs::write(self.0.join("number"), (number + 1).to_string())?;
        fs::remove_file(mark)?;
        Ok(inside)
    }

    #[cfg_attr(not(unix), allow(dead_code, reason = "processes are commanded on unix only"))]
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn number(&self) -> io::Result<usize> {
        match fs::read_to_string(self.0.join("number")) {
            Ok(text) => Ok(text.trim().parse().unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }
}
