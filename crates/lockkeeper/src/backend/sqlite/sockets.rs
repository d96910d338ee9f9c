//! How processes wake one another: each process that waits has a datagram socket in a folder beside
//! the file, under the name that its rows have in the column `process`.
//!
//! A message means "look at the file" and nothing else. A forged message costs its receiver one
//! look; a message that is lost, or cannot be sent, delays the hand-over until the next heartbeat.
//! So nothing here is needed for correctness, and every error may be ignored.
//!
//! Rejected: a watch on the log file, which wakes every waiter at every commit; a FIFO, where a
//! write to a reader that has just died raises SIGPIPE in programs that did not ask for it;
//! abstract names, which have no path and so no permissions: every user of the machine could take
//! or use them.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest path that fits into a socket address on every system, without its terminating zero.
const LONGEST_ADDRESS: usize = 103;

/// The sockets of all processes that use one file, as one of these processes sees them.
#[derive(Debug)]
pub(super) struct Sockets {
    /// The database with all links resolved; its owner and mode are the pattern for those of a
    /// socket.
    database: PathBuf,
    folder: PathBuf,
    /// Sends to all of them; `None` if none could be made, and then nobody is woken.
    sender: Option<UnixDatagram>,
}

impl Sockets {
    /// The sockets of the processes that use `database`. Makes nothing yet: a process that never
    /// waits leaves no trace beside the file.
    pub(super) fn beside(database: &Path) -> Self {
        // As SQLite names the log: processes that reach the file through different links must meet
        // in the same folder.
        let database = fs::canonicalize(database).unwrap_or_else(|_| database.to_owned());
        let mut folder = database.clone().into_os_string();
        folder.push("-wake");
        let sender = UnixDatagram::unbound().ok();
        // A process that does not read its socket must not block the one that wakes it. A full
        // socket means that the process has unread messages, and so will look at the file anyway.
        let sender = sender.filter(|sender| sender.set_nonblocking(true).is_ok());
        Self { database, folder: folder.into(), sender }
    }

    /// Has `process` look at the file, if it can be told. Called after the commit: a process that
    /// looks before it would find nothing and go back to sleep.
    pub(super) fn wake(&self, process: &str) {
        let Some(sender) = &self.sender else { return };
        // The name comes from the file, and every user that may write there may have put a path
        // such as `../other` into it.
        if !is_plain(process) {
            return;
        }
        let path = self.folder.join(process);
        let sent = Address::of(&path).and_then(|address| sender.send_to(&[0], &address.path));
        if let Err(error) = sent
            && error.kind() == io::ErrorKind::ConnectionRefused
        {
            // The name is there and nobody reads it: its process was killed.
            let _ = fs::remove_file(path);
        }
    }

    /// Makes the socket of this `process`, and the folder if it is not there. Either the socket is
    /// ready to receive, with its permissions set, or nothing of it is left.
    pub(super) fn open(&self, process: &str) -> io::Result<Socket> {
        let path = self.folder.join(process);
        let mut tries = 3;
        let receiver = loop {
            self.make_folder()?;
            // Binding fails if the name exists. It can only be this client's own earlier socket,
            // since no two clients have the same name.
            let _ = fs::remove_file(&path);
            match Address::of(&path).and_then(|address| UnixDatagram::bind(&address.path)) {
                // Another process removed the folder between the two steps, because its own socket
                // was the last in it.
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries > 1 => tries -= 1,
                outcome => break outcome?,
            }
        };
        // A user that may write the file may wake the processes that wait for it: sending needs the
        // right to write, so the group's and the others' right is copied from the file.
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

    /// Makes the folder, with the owner and the mode of the one that it is in: a user that may make
    /// files beside the database, as SQLite's log requires, may also make a socket.
    fn make_folder(&self) -> io::Result<()> {
        match fs::create_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            outcome => outcome?,
        }
        let parent = self.folder.parent().unwrap_or(Path::new("/"));
        let like = fs::metadata(parent)?;
        give_to(&self.folder, &like, like.mode() & 0o7777)
    }

    /// Removes what killed processes left behind. A socket that nobody reads refuses a connection;
    /// one that is in use accepts it and receives no message, so its process is not woken.
    pub(super) fn remove_stale(&self) {
        let Ok(records) = fs::read_dir(&self.folder) else { return };
        for path in records.flatten().map(|record| record.path()) {
            let probe = || UnixDatagram::unbound()?.connect(&Address::of(&path)?.path);
            if probe().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
                let _ = fs::remove_file(&path);
            }
        }
        // Fails while there is anything in it, as it should.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Where this process is woken. Lives in the [`Wakeup`](super::waiters::Wakeup), and is removed by
/// name when the client is dropped.
#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
    receiver: UnixDatagram,
    /// Connected to the receiver: reaches it also after somebody removed its name.
    waker: UnixDatagram,
}

impl Socket {
    /// Wakes the driver of this process while it waits at the socket.
    pub(super) fn wake(&self) {
        // If it fails because the queue is full, the driver has a message to wake it already.
        let _ = self.waker.send(&[0]);
    }

    /// Waits until woken or for at most `limit`, and says which; an error when that cannot be done
    /// here. Takes one message: others that have arrived end the next waits at once, each with a
    /// look that finds nothing.
    pub(super) fn wait(&self, limit: Option<Duration>) -> io::Result<bool> {
        // A read timeout of zero is an error to the standard library.
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

    /// Whether other processes can find it: its name may have been removed, by hand or with the
    /// folder.
    pub(super) fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok()
    }

    /// Takes its name away, and the folder if it was the last in it. A message that is sent
    /// meanwhile goes nowhere, which is right for a client that is ending.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
        if let Some(folder) = self.path.parent() {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// A path short enough to be a socket's address. Changing the working directory would make paths
/// shorter as well, but it belongs to the whole program.
struct Address {
    path: PathBuf,
    /// Kept open while the path leads through its descriptor.
    _folder: Option<fs::File>,
}

impl Address {
    /// The path itself where it fits.
    fn of(path: &Path) -> io::Result<Self> {
        if path.as_os_str().len() <= LONGEST_ADDRESS {
            return Ok(Self { path: path.to_owned(), _folder: None });
        }
        Self::by_descriptor(path)
    }

    /// Through an open descriptor of the folder, which Linux shows as a short path. Closing it does
    /// no harm; closing a descriptor of the database would drop SQLite's locks.
    #[cfg(target_os = "linux")]
    fn by_descriptor(path: &Path) -> io::Result<Self> {
        use std::os::fd::AsRawFd;
        let folder = fs::File::open(path.parent().unwrap_or(Path::new("/")))?;
        let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        let path = short.join(path.file_name().unwrap_or_default());
        Ok(Self { path, _folder: Some(folder) })
    }

    /// There is no such path on other systems; the driver polls there if the path is too long.
    #[cfg(not(target_os = "linux"))]
    fn by_descriptor(_: &Path) -> io::Result<Self> {
        Err(io::ErrorKind::InvalidFilename.into())
    }
}

/// Whether it is a name as we make them, which leads to no other folder.
fn is_plain(process: &str) -> bool {
    !process.is_empty() && process.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Gives `path` the owner of `like`, as far as we may, and `mode`. That the owner cannot be changed
/// is not an error: only root may, and for other users the group is what matters.
fn give_to(path: &Path, like: &fs::Metadata, mode: u32) -> io::Result<()> {
    // Only root may change the owner. Were it not to, its socket would shut out the users that it
    // shares the file with.
    let _ = chown(path, Some(like.uid()), Some(like.gid()))
        .or_else(|_| chown(path, None, Some(like.gid())));
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}
