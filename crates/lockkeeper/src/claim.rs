//! What is asked of a store: a [`Claim`] on a [`Name`], in a [`Mode`], by an [`Owner`].

use crate::chacha;
use crate::error::{Error, ErrorKind, Result};
use crate::fnv;
use crate::name::Name;
pub use crate::token::FencingToken;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How a claim shares its name with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// With any number of other `Shared` claims.
    Shared,
    /// With other permits, at most `of` of them at once.
    Permit {
        /// How many may be held at once. When claims on one name disagree, the smallest counts.
        of: u32,
    },
}

impl Mode {
    /// Whether an owner who holds `self` may enter again asking for `wanted`.
    ///
    /// A permit covers no permit of a smaller number: the smallest number counts for everyone, and
    /// more than that may hold the name already.
    ///
    /// ```
    /// use lockkeeper::backend::Mode;
    ///
    /// assert!(Mode::Exclusive.covers(Mode::Shared) && !Mode::Shared.covers(Mode::Exclusive));
    /// let permit = |of| Mode::Permit { of };
    /// assert!(permit(3).covers(permit(3)) && permit(3).covers(permit(5)));
    /// assert!(!permit(3).covers(permit(1)));
    /// ```
    pub fn covers(self, wanted: Mode) -> bool {
        match (self, wanted) {
            (Mode::Exclusive, _) | (Mode::Shared, Mode::Shared) => true,
            (Mode::Permit { of }, Mode::Permit { of: wanted }) => of <= wanted,
            _ => false,
        }
    }

    /// The refusal of an owner who holds `self` and asks for `wanted`, which it does not cover.
    pub fn upgrade_refused(self, name: &Name, wanted: Mode) -> Error {
        Error::new(
            ErrorKind::WouldDeadlock,
            format!(
                "this owner holds {name:?} as {self} and would wait for itself to get it as \
                 {wanted}: release it first, or ask for {wanted} from the start"
            ),
        )
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Exclusive => f.write_str("exclusive"),
            Mode::Shared => f.write_str("shared"),
            Mode::Permit { of } => write!(f, "permit of {of}"),
        }
    }
}

/// Which of the keeper's handles a claim was made by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Primitive {
    /// [`Keeper::lock`](crate::Keeper::lock), also for several at once and for elections.
    Lock,
    /// One side of [`Keeper::rw_lock`](crate::Keeper::rw_lock).
    RwLock,
    /// [`Keeper::semaphore`](crate::Keeper::semaphore).
    Semaphore,
}

/// Who holds a lock, as far as re-entry goes.
///
/// An owner that holds a name and asks for it again gets it at once, with the same token, and
/// the name is free after as many releases. It shares the hold as it is: ttl, bounds and note
/// stay those of the first claim. Every guard gets an owner of its own unless one is named, and
/// such an owner is not for entering again: name one for that.
///
/// What is asked for must be covered by what is held: a writer may read, but a reader that would
/// write, or the holder of one permit of three that asks for one of two, is refused with
/// [`ErrorKind::WouldDeadlock`]; others may hold the name beside it.
///
/// Within one keeper that holds for every store. From another keeper or process it takes a store
/// with [`Capability::reentrant`](crate::backend::Capability::reentrant); elsewhere such a claim
/// waits like any other.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// let keeper = lockkeeper::connect("memory:").await?;
/// let me = keeper.owner("billing");
/// let outer = keeper.lock("orders/42").owner(&me).acquire().await?;
/// let inner = keeper.lock("orders/42").owner(&me).acquire().await?; // does not wait
/// assert_eq!(outer.token(), inner.token());
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    /// The owner with this id, made elsewhere: how a child process continues its parent's.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when `id` is empty, longer than 200 bytes or contains control
    /// characters.
    pub fn new(id: &str) -> Result<Self> {
        if id.is_empty() || id.len() > 200 || id.chars().any(char::is_control) {
            return Err(Error::new(
                ErrorKind::Config,
                format!("{id:?} is not an owner id: 1 to 200 bytes without control characters"),
            ));
        }
        Ok(Self(id.into()))
    }

    pub(crate) fn from_id(id: String) -> Self {
        Self(id.into())
    }

    /// The id, unique among all owners of all processes.
    pub fn id(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({})", self.0)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The identity of one claim, unique for ever: what a release or a renewal is checked against.
///
/// A keeper makes one for each claim. A caller that wants to ask for the same claim again, from
/// wherever, makes one itself; see [`Lock::claim`](crate::Lock::claim).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(u128);

impl ClaimId {
    /// A new one, of random numbers.
    ///
    /// # Errors
    /// Only when the system gives no random numbers.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; 16];
        fill(&mut bytes)?;
        Ok(Self(u128::from_be_bytes(bytes)))
    }

    /// That of one of several claims that are asked for under this id: another for each name.
    pub(crate) fn of_part(self, name: &Name) -> Self {
        Self(self.0 ^ fnv::hash_128(name.as_str().as_bytes()))
    }

    /// A number below `of` that differs between claims made one after another.
    pub(crate) fn spread(self, of: u32) -> u32 {
        u32::try_from(self.0 % u128::from(of)).unwrap_or_default()
    }
}

/// As [`Display`](fmt::Display) writes it, 32 hexadecimal digits; or as a UUID is written.
impl FromStr for ClaimId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_uuid = text.len() == 36
            && text
                .bytes()
                .enumerate()
                .all(|(at, byte)| (byte == b'-') == [8, 13, 18, 23].contains(&at));
        let digits = if is_uuid { text.replace('-', "") } else { text.to_owned() };
        let is_hex = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_hex.then(|| u128::from_str_radix(&digits, 16).ok()).flatten();
        number.map(Self).ok_or_else(|| {
            let message =
                format!("{text:?} is not the id of a claim: 32 hexadecimal digits, or a UUID");
            Error::new(ErrorKind::Config, message)
        })
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not by `{:032x}`: every claim is written, and this takes half as many instructions.
        let mut digits = [0; 32];
        for (at, byte) in self.0.to_be_bytes().into_iter().enumerate() {
            let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
            (digits[2 * at], digits[2 * at + 1]) = (digit(byte >> 4), digit(byte & 15));
        }
        f.write_str(std::str::from_utf8(&digits).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClaimId({self})")
    }
}

/// Makes [`ClaimId`]s: a keyed generator, so that the hot path asks the system for no randomness.
///
/// Not a counter, nor anything else that tells of the next one: in some stores a client that knows the
/// id of a claim can speak in its name, and ids of earlier claims are seen by many.
pub(crate) struct ClaimIds {
    key: [u32; 8],
    next: AtomicU64,
}

impl ClaimIds {
    pub(crate) fn new() -> Result<Self> {
        let mut bytes = [0; 32];
        fill(&mut bytes)?;
        let (words, _) = bytes.as_chunks::<4>();
        let mut key = [0; 8];
        key.iter_mut().zip(words).for_each(|(word, bytes)| *word = u32::from_le_bytes(*bytes));
        Ok(Self { key, next: AtomicU64::new(0) })
    }

    pub(crate) fn next(&self) -> ClaimId {
        ClaimId(chacha::number(&self.key, self.next.fetch_add(1, Ordering::Relaxed)))
    }
}

fn fill(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes).map_err(|error| {
        Error::new(ErrorKind::Unavailable, "the system gave no random numbers")
            .caused_by(error.to_string())
    })
}

/// Without the key.
impl fmt::Debug for ClaimIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimIds").finish_non_exhaustive()
    }
}

/// One request to hold a name, as a backend sees it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Claim {
    /// Unique to this request. Whatever the request leaves in a store carries it.
    pub id: ClaimId,
    /// What is claimed.
    pub name: Name,
    /// How it is shared.
    pub mode: Mode,
    /// What the caller asked for. To us the write side of a read-write lock is an exclusive claim
    /// like that of a lock; it matters to recipes that share locks with libraries which keep the
    /// two apart.
    pub primitive: Primitive,
    /// Whose claims count as one.
    pub owner: Owner,
    /// How long the store keeps the claim without a renewal.
    pub ttl: Duration,
    /// Who asks, for people: `user@host pid 4242`.
    pub identity: Arc<str>,
    /// Free text shown to those who wait.
    pub note: Arc<str>,
    /// The id is one that the caller chose, perhaps for an earlier request: the claim may be in the
    /// store already.
    pub by_id: bool,
}

impl Claim {
    /// The refusal of a claim that was asked for by an id which is that of a claim with other terms: of
    /// mode `has`, and with a ttl of `ttl`, where the store knows that. Each holder of a claim counts on
    /// the ttl that it asked for, so it must be the same for all.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], unless the terms are the same.
    pub fn refuse_other_terms(&self, has: Mode, ttl: Option<Duration>) -> Result<()> {
        let (name, mode) = (&self.name, self.mode);
        let differs = if mode != has {
            format!("is {has}, not {mode}")
        } else if ttl.is_some_and(|ttl| ttl.as_millis() != self.ttl.as_millis()) {
            format!("has a ttl of {:?}, not {:?}", ttl.unwrap_or_default(), self.ttl)
        } else {
            return Ok(());
        };
        let message = format!(
            "the claim on {name:?} with this id {differs}: an id is for one claim, so ask for the \
             same again, or make a new id"
        );
        Err(Error::new(ErrorKind::Config, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_ids_differ() {
        let ids = ClaimIds::new().unwrap();
        assert_ne!(ids.next(), ids.next());
        assert_ne!(ids.next(), ClaimIds::new().unwrap().next());
        let id = ids.next();
        assert_eq!(id.to_string().parse::<ClaimId>().unwrap(), id);
        let uuid: ClaimId = "00112233-4455-6677-8899-aabbccddeeff".parse().unwrap();
        assert_eq!(uuid.to_string(), "00112233445566778899aabbccddeeff");
        let wrong =
            ["", "1", "+0000000000000000000000000000001", "0011223344-55-6677-8899-aabbccddeeff"];
        for wrong in wrong.into_iter().chain([&*"f".repeat(33), &*"g".repeat(32)]) {
            assert_eq!(wrong.parse::<ClaimId>().unwrap_err().kind(), ErrorKind::Config, "{wrong}");
        }
    }

    #[test]
    fn one_claim_id_tells_nothing_of_the_next() {
        let ids = ClaimIds::new().unwrap();
        let digits: Vec<Vec<char>> =
            (0..64).map(|_| ids.next().to_string().chars().collect()).collect();
        for place in 0..32 {
            let same = digits.iter().filter(|id| id[place] == digits[0][place]).count();
            // By chance all 64 agree in one place once in 16^63 times.
            assert!(same < 64, "digit {place} is the same in all of them");
        }
        let numbers: Vec<u128> =
            (0..64).map(|_| u128::from_str_radix(&ids.next().to_string(), 16).unwrap()).collect();
        let steps: std::collections::HashSet<u128> =
            numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        assert_eq!(steps.len(), 63, "they go up in steps that repeat");
    }
}
