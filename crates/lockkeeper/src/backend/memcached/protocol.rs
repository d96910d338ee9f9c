//! memcached's text protocol, as far as we speak it: the meta commands, and three plain ones.
//!
//! ```text
//! ms KEY SIZE ME T32 c O7 ⏎ DATA     add, for 32 seconds    HD c57 O7 · NS c0 O7
//! ms KEY SIZE C57 T32 c O8 ⏎ DATA    set, if the CAS is 57  HD c58 O8 · EX · NF
//! md KEY C58 O9                      delete, if it is 58    HD O9 · EX · NF
//! mg KEY v c t O10                   read                   VA SIZE c58 t30 O10 ⏎ DATA · EN
//! ma KEY N0 J1 D1 v O11              count                  VA SIZE O11 ⏎ NUMBER
//! stats                              STAT NAME VALUE … END
//! ```
//!
//! Answers come in the order of the requests, and each carries its request's number (`O`): an answer
//! that comes where another was due ends the connection, and is believed by nobody.

/// The longest line we read. Longer ones are no answers of memcached.
const LONGEST_LINE: usize = 4096;
/// What ends a line, and a value.
const END: &str = "\r\n";
/// Room for what a line has beside its key: a few words and numbers.
const MOST_BESIDE_KEY: usize = 96;
/// The longest value we read: that of a lock is far below; a key that others use may hold more.
const LONGEST_VALUE: usize = 64 << 20;

/// One request, as it is sent.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) bytes: Vec<u8>,
    /// Its number, which the answer must carry; `None` for the plain commands, which have none.
    pub(super) number: Option<u32>,
}

/// When an item is stored.
#[derive(Debug, Clone, Copy)]
pub(super) enum When {
    /// If there is none.
    Absent,
    /// If the item has this CAS.
    Is(u64),
    /// Whatever there is.
    Always,
}

impl Request {
    /// Stores `value`, to be kept for `seconds`. The key is one of [`keys`](super::keys), and so is
    /// one word for the server.
    pub(super) fn set(number: u32, key: &str, value: &[u8], when: When, seconds: u64) -> Self {
        let mut line = Line::new("ms", key, value.len() + END.len());
        line.number(" ", value.len() as u64);
        match when {
            When::Absent => line.text(" ME"),
            When::Is(cas) => line.number(" C", cas),
            When::Always => line.text(" MS"),
        }
        line.number(" T", seconds);
        line.text(" c");
        let mut request = line.end(number);
        request.bytes.extend_from_slice(value);
        request.bytes.extend_from_slice(END.as_bytes());
        request
    }

    /// Deletes the item if it has this CAS.
    pub(super) fn delete(number: u32, key: &str, cas: u64) -> Self {
        let mut line = Line::new("md", key, 0);
        line.number(" C", cas);
        line.end(number)
    }

    /// Reads the item, its CAS, and how many seconds it is still kept.
    pub(super) fn get(number: u32, key: &str) -> Self {
        let mut line = Line::new("mg", key, 0);
        line.text(" v c t");
        line.end(number)
    }

    /// Counts up by `step`; a count that does not exist begins as `first`, and is never dropped for
    /// its age.
    pub(super) fn count(number: u32, key: &str, step: u64, first: u64) -> Self {
        let mut line = Line::new("ma", key, 0);
        line.number(" N0 J", first);
        line.number(" D", step);
        line.text(" v");
        line.end(number)
    }

    /// A plain command without data.
    pub(super) fn plain(line: &str) -> Self {
        Self { bytes: format!("{line}\r\n").into_bytes(), number: None }
    }

    /// Logs in, which looks like storing `user password`; as expired already, so that a server which
    /// wants no login keeps nothing of it.
    pub(super) fn login(login: &str) -> Self {
        let bytes = format!("set auth 0 -1 {}\r\n{login}\r\n", login.len()).into_bytes();
        Self { bytes, number: None }
    }
}

/// The line of a meta command, put together in one buffer: every lock and every release makes one.
struct Line(Vec<u8>);

impl Line {
    /// `behind` is how many bytes will follow the line.
    fn new(command: &str, key: &str, behind: usize) -> Self {
        let mut line = Self(Vec::with_capacity(key.len() + MOST_BESIDE_KEY + behind));
        line.text(command);
        line.text(" ");
        line.text(key);
        line
    }

    fn text(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, before: &str, number: u64) {
        self.text(before);
        self.0.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    fn end(mut self, number: u32) -> Request {
        self.number(" O", number.into());
        self.text(END);
        Request { bytes: self.0, number: Some(number) }
    }
}

/// What a meta command came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    /// `HD`: done.
    Done,
    /// `NS`: not stored.
    NotStored,
    /// `EX`: the item has another CAS.
    Changed,
    /// `NF`, `EN`: there is no such item.
    Absent,
    /// `MN`: the answer to `mn`, which asks whether there are meta commands at all.
    NoOperation,
}

/// What stands behind the code or the size of a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Flags {
    pub(super) cas: u64,
    /// How many seconds the item is still kept; negative without end.
    pub(super) ttl: i64,
    number: Option<u32>,
}

/// One whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Code(Code, Flags),
    Value(Vec<u8>, Flags),
    /// The lines of `stats`: name and value.
    Stats(Vec<(String, String)>),
    Version(String),
    /// The answer to a login.
    Stored,
    /// `ERROR`, `CLIENT_ERROR`: the server did not understand, and may take what follows for another
    /// command.
    Misunderstood(String),
    /// `SERVER_ERROR`: the server understood, and cannot.
    Refused(String),
}

/// What was read is no answer of memcached, or not to this request. The beginning of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Nonsense(pub(super) String);

/// The first whole answer in `input` and its length, `None` if it is not all there yet.
pub(super) fn parse(input: &[u8]) -> Result<Option<(Reply, usize)>, Nonsense> {
    let Some((line, rest)) = line(input)? else { return Ok(None) };
    let (word, behind) = line.split_once(' ').unwrap_or((line, ""));
    let code = |code| Ok(Reply::Code(code, read_flags(behind, line)?));
    let reply = match word {
        "VA" => return value(line, behind, input, rest),
        "HD" => code(Code::Done)?,
        "NS" => code(Code::NotStored)?,
        "EX" => code(Code::Changed)?,
        "NF" | "EN" => code(Code::Absent)?,
        "STAT" => return stats(input),
        "END" if line == word => return stats(input),
        "MN" if line == word => Reply::Code(Code::NoOperation, Flags::default()),
        "VERSION" => Reply::Version(behind.to_owned()),
        "STORED" if line == word => Reply::Stored,
        "ERROR" | "CLIENT_ERROR" => Reply::Misunderstood(line.to_owned()),
        "SERVER_ERROR" => Reply::Refused(line.to_owned()),
        _ => return Err(Nonsense::of(line)),
    };
    Ok(Some((reply, input.len() - rest.len())))
}

impl Reply {
    /// Whether it is the answer to the request with this number. A refusal carries none.
    pub(super) fn answers(&self, number: Option<u32>) -> bool {
        match self {
            Self::Code(_, flags) | Self::Value(_, flags) => flags.number == number,
            Self::Misunderstood(_) | Self::Refused(_) => true,
            Self::Stats(_) | Self::Version(_) | Self::Stored => number.is_none(),
        }
    }
}

impl Nonsense {
    /// Cut short, and without what would upset a terminal.
    pub(super) fn of(said: &str) -> Self {
        let shown =
            |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
        Self(said.chars().take(60).map(shown).collect())
    }
}

/// The first line without its end, and what follows.
fn line(input: &[u8]) -> Result<Option<(&str, &[u8])>, Nonsense> {
    let first = &input[..input.len().min(LONGEST_LINE)];
    let Some(end) = first.iter().position(|byte| *byte == b'\n') else {
        return match input.len() < LONGEST_LINE {
            true => Ok(None),
            false => Err(Nonsense::of(&String::from_utf8_lossy(&input[..60]))),
        };
    };
    let (line, rest) = (&input[..end], &input[end + 1..]);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match std::str::from_utf8(line) {
        Ok(line) => Ok(Some((line, rest))),
        Err(_) => Err(Nonsense::of(&String::from_utf8_lossy(line))),
    }
}

fn value(
    line: &str,
    words: &str,
    input: &[u8],
    rest: &[u8],
) -> Result<Option<(Reply, usize)>, Nonsense> {
    let nonsense = || Nonsense::of(line);
    let (size, flags) = words.split_once(' ').unwrap_or((words, ""));
    let size: usize = size.parse().map_err(|_| nonsense())?;
    if size > LONGEST_VALUE {
        return Err(nonsense());
    }
    let Some((data, rest)) = rest.split_at_checked(size) else { return Ok(None) };
    let Some((end, rest)) = rest.split_at_checked(2) else { return Ok(None) };
    if end != b"\r\n" {
        return Err(nonsense());
    }
    let reply = Reply::Value(data.to_vec(), read_flags(flags, line)?);
    Ok(Some((reply, input.len() - rest.len())))
}

fn stats(input: &[u8]) -> Result<Option<(Reply, usize)>, Nonsense> {
    let (mut rest, mut all) = (input, Vec::new());
    while let Some((line, next)) = line(rest)? {
        rest = next;
        if line == "END" {
            return Ok(Some((Reply::Stats(all), input.len() - rest.len())));
        }
        let stat = line.strip_prefix("STAT ").and_then(|stat| stat.split_once(' '));
        let (name, value) = stat.ok_or_else(|| Nonsense::of(line))?;
        all.push((name.to_owned(), value.to_owned()));
    }
    Ok(None)
}

fn read_flags(words: &str, line: &str) -> Result<Flags, Nonsense> {
    let mut flags = Flags::default();
    for word in words.split(' ').filter(|word| !word.is_empty()) {
        let Some((flag, token)) = word.split_at_checked(1) else {
            return Err(Nonsense::of(line));
        };
        let read = match flag {
            "c" => token.parse().map(|cas| flags.cas = cas).is_ok(),
            "t" => token.parse().map(|ttl| flags.ttl = ttl).is_ok(),
            "O" => token.parse().map(|number| flags.number = Some(number)).is_ok(),
            // Not asked for: `W`, `X` and `Z` of later versions.
            _ => true,
        };
        if !read {
            return Err(Nonsense::of(line));
        }
    }
    Ok(flags)
}

#[cfg(test)]
mod tests;
