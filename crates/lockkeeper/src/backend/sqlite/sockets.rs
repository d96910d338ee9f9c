//! How processes wake one another: each that waits has a datagram socket in a folder beside the
//! file, under the name that its rows carry.
//!
//! A message says nothing but "look at the file", so a forged one costs a look and no more; one
//! that is lost, or cannot be sent, costs the rest of a heartbeat. Rejected: a watch on the log
//! file, which wakes every waiter at every commit; a FIFO, where a write to a reader that has just
//! died raises SIGPIPE in programs that did not ask for it; names without a path, which anybody on
//! the machine may use.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a socket's address has room for on every system, less its terminating zero.
const LONGEST_ADDRESS: usize = 103;

/// The sockets of everyone who uses one file.
#[derive(Debug)]
pub(super) struct Sockets {
    database: PathBuf,
    folder: PathBuf,
    sender: Option<UnixDatagram>,
}

impl Sockets {
    /// Those of the processes that use `database`. Makes nothing yet.
    pub(super) fn beside(database: &Path) -> Self {
        // As SQLite names the log: whichever link led here, all must meet in the same folder.
        let database = fs::canonicalize(database).unwrap_or_else(|_| database.to_owned());
        let mut folder = database.clone().into_os_string();
        folder.push("-wake");
        let sender = UnixDatagram::unbound().ok();
        // A reader that does not read must not stop the process that wakes it.
        let sender = sender.filter(|sender| sender.set_nonblocking(true).is_ok());
        Self { database, folder: folder.into(), sender }
    }

    /// Has `process` look at the file, if it can be told.
    pub(super) fn wake(&self, process: &str) {
        let Some(sender) = &self.sender else { return };
        // Read from the file, where anybody may have written it who may write there.
        if !is_plain(process) {
            return;
        }
        let path = self.folder.join(process);
        let sent = Address::of(&path).and_then(|address| sender.send_to(&[0], &address.path));
        if let Err(error) = sent
            && error.kind() == io::ErrorKind::ConnectionRefused
        {
            // Nobody reads it any more.
            let _ = fs::remove_file(path);
        }
    }

    /// The socket of this `process`.
    pub(super) fn open(&self, process: &str) -> io::Result<Socket> {
        let path = self.folder.join(process);
        let mut tries = 3;
        let receiver = loop {
            self.make_folder()?;
            // One that is left there under our name nobody reads: names are not used twice.
            let _ = fs::remove_file(&path);
            match Address::of(&path).and_then(|address| UnixDatagram::bind(&address.path)) {
                // The last to leave has just removed the folder.
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries > 1 => tries -= 1,
                outcome => break outcome?,
            }
        };
        // A user who may write the file may wake those who wait for it.
        let file = fs::metadata(&self.database)?;
        let mode = 0o600 | (file.mode() & 0o022);
        let ready = give_to(&path, &file, mode).and_then(|()| {
            let waker = UnixDatagram::unbound()?;
            waker.set_nonblocking(true)?;
            waker.connect(&Address::of(&path)?.path)?;
            Ok(waker)
        });
        match ready {
            Ok(waker) => Ok(Socket { path, receiver, waker }),
            Err(error) => {
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    /// Makes the folder, open to those who may make files beside the database.
    fn make_folder(&self) -> io::Result<()> {
        match fs::create_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            outcome => outcome?,
        }
        let parent = self.folder.parent().unwrap_or(Path::new("/"));
        let like = fs::metadata(parent)?;
        give_to(&self.folder, &like, like.mode() & 0o7777)
    }

    /// Removes what killed processes left behind.
    pub(super) fn remove_stale(&self) {
        let Ok(records) = fs::read_dir(&self.folder) else { return };
        for path in records.flatten().map(|record| record.path()) {
            let probe = || UnixDatagram::unbound()?.connect(&Address::of(&path)?.path);
            if probe().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
                let _ = fs::remove_file(&path);
            }
        }
        // Not while there is anything in it.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Where this process is woken.
#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
    receiver: UnixDatagram,
    /// Connected to the receiver: reaches it also after somebody removed its name.
    waker: UnixDatagram,
}

impl Socket {
    /// Wakes this process itself.
    pub(super) fn wake(&self) {
        // A full queue wakes as well.
        let _ = self.waker.send(&[0]);
    }

    /// Waits until woken or for at most `limit`, and says which; an error when that cannot be
    /// done here.
    pub(super) fn wait(&self, limit: Option<Duration>) -> io::Result<bool> {
        if limit.is_some_and(|limit| limit.is_zero()) {
            return Ok(false);
        }
        self.receiver.set_read_timeout(limit)?;
        match self.receiver.recv(&mut [0; 8]) {
            Ok(_) => Ok(true),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => Ok(false),
                _ => Err(error),
            },
        }
    }

    /// Whether others find it.
    pub(super) fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok()
    }

    /// Takes its name away, and the folder with the last of them.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
        if let Some(folder) = self.path.parent() {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// A path short enough to be a socket's address.
struct Address {
    path: PathBuf,
    /// Kept open while the path leads through it.
    _folder: Option<fs::File>,
}

impl Address {
    fn of(path: &Path) -> io::Result<Self> {
        if path.as_os_str().len() <= LONGEST_ADDRESS {
            return Ok(Self { path: path.to_owned(), _folder: None });
        }
        Self::by_descriptor(path)
    }

    #[cfg(target_os = "linux")]
    fn by_descriptor(path: &Path) -> io::Result<Self> {
        use std::os::fd::AsRawFd;
        let folder = fs::File::open(path.parent().unwrap_or(Path::new("/")))?;
        let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        let path = short.join(path.file_name().unwrap_or_default());
        Ok(Self { path, _folder: Some(folder) })
    }

    #[cfg(not(target_os = "linux"))]
    fn by_descriptor(_: &Path) -> io::Result<Self> {
        Err(io::ErrorKind::InvalidFilename.into())
    }
}

fn is_plain(process: &str) -> bool {
    !process.is_empty() && process.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Makes `path` belong to whom `like` belongs, as far as we may, with `mode`.
fn give_to(path: &Path, like: &fs::Metadata, mode: u32) -> io::Result<()> {
    // Both only for root, who would otherwise shut out the users it shares the file with.
    let _ = chown(path, Some(like.uid()), Some(like.gid()))
        .or_else(|_| chown(path, None, Some(like.gid())));
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}
