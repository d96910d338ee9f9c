//! What a process that takes ids writes down: numbers of 64 bits, least byte first.
//!
//! A record is four of them and what follows: when it was asked for and when it was answered, on the
//! clock that all processes share; what it is; how many ids or bytes follow. What was not written when
//! the process was killed is not known, and nobody asks for it: an id that is in the file was given.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::Path;

/// The longest text of a record.
const LONGEST: u64 = 4096;

/// What a record is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A generator was opened: from here on, ids are in its order.
    Opened,
    /// Ids were given.
    Ids(Vec<u64>),
    /// There were none, and why.
    Refused { retryable: bool, kind: String, message: String },
    /// As many were taken as were asked for.
    Done,
}

const OPENED: u64 = 1;
const IDS: u64 = 2;
const REFUSED: u64 = 3;
const LASTING: u64 = 4;
const DONE: u64 = 5;

/// Writes records.
#[derive(Debug)]
pub(crate) struct Log(BufWriter<File>);

impl Log {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self(BufWriter::with_capacity(1 << 18, file)))
    }

    pub(crate) fn ids(
        &mut self,
        (asked, returned): (u64, u64),
        ids: impl ExactSizeIterator<Item = u64>,
    ) -> Result<()> {
        self.head(asked, returned, IDS, ids.len() as u64)?;
        for id in ids {
            self.0.write_all(&id.to_le_bytes())?;
        }
        Ok(())
    }

    pub(crate) fn opened(&mut self, at: u64) -> Result<()> {
        self.head(at, at, OPENED, 0)
    }

    pub(crate) fn done(&mut self, at: u64) -> Result<()> {
        self.head(at, at, DONE, 0)
    }

    pub(crate) fn refused(
        &mut self,
        (asked, returned): (u64, u64),
        error: &lockkeeper::Error,
    ) -> Result<()> {
        let text = format!("{:?}\n{error}", error.kind());
        let text: String = text.chars().take(1000).collect();
        let tag = if error.is_retryable() { REFUSED } else { LASTING };
        self.head(asked, returned, tag, text.len() as u64)?;
        Ok(self.0.write_all(text.as_bytes())?)
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        Ok(self.0.flush()?)
    }

    fn head(&mut self, asked: u64, returned: u64, tag: u64, count: u64) -> Result<()> {
        for word in [asked, returned, tag, count] {
            self.0.write_all(&word.to_le_bytes())?;
        }
        Ok(())
    }
}

/// Reads the records of a file: of the last one as much as is there.
pub(crate) fn read(path: &Path, mut each: impl FnMut((u64, u64), Entry)) -> Result<()> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut file = BufReader::with_capacity(1 << 18, file);
    while let Some(asked) = word(&mut file)? {
        let head = (word(&mut file)?, word(&mut file)?, word(&mut file)?);
        let (Some(returned), Some(tag), Some(count)) = head else { break };
        let entry = match tag {
            OPENED => Entry::Opened,
            DONE => Entry::Done,
            IDS => {
                let mut ids = Vec::new();
                for _ in 0..count {
                    let Some(id) = word(&mut file)? else { break };
                    ids.push(id);
                }
                Entry::Ids(ids)
            }
            REFUSED | LASTING if count <= LONGEST => {
                let mut text = Vec::new();
                file.by_ref().take(count).read_to_end(&mut text)?;
                let text = String::from_utf8_lossy(&text).into_owned();
                let (kind, message) = text.split_once('\n').unwrap_or((&text, ""));
                let (kind, message) = (kind.to_owned(), message.to_owned());
                Entry::Refused { retryable: tag == REFUSED, kind, message }
            }
            _ => bail!("{} is no file of ids", path.display()),
        };
        each((asked, returned), entry);
    }
    Ok(())
}

/// The next number; `None` where the file ends, in the midst of it too.
fn word(file: &mut impl Read) -> Result<Option<u64>> {
    let mut bytes = [0; 8];
    match file.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(u64::from_le_bytes(bytes))),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(path: &Path) -> Vec<((u64, u64), Entry)> {
        let mut all = Vec::new();
        read(path, |stamps, entry| all.push((stamps, entry))).expect("a file of ids");
        all
    }

    #[test]
    fn a_file_that_was_cut_short_has_what_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ids");
        let mut log = Log::create(&path).expect("a file");
        log.opened(1).expect("written");
        let error = lockkeeper::Error::new(lockkeeper::ErrorKind::Unavailable, "no answer");
        log.refused((2, 3), &error).expect("written");
        log.ids((4, 5), [7, 8, 9].into_iter()).expect("written");
        log.flush().expect("written");
        let whole = entries(&path);
        assert_eq!(whole[0], ((1, 1), Entry::Opened));
        let (kind, message) = ("Unavailable".to_owned(), error.to_string());
        assert_eq!(whole[1], ((2, 3), Entry::Refused { retryable: true, kind, message }));
        assert_eq!(whole[2], ((4, 5), Entry::Ids(vec![7, 8, 9])));
        let bytes = std::fs::read(&path).expect("read");
        std::fs::write(&path, &bytes[..bytes.len() - 9]).expect("written");
        assert_eq!(entries(&path)[2], ((4, 5), Entry::Ids(vec![7])));
    }
}
