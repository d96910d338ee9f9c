//! What finds a claim in its store from anywhere.

use crate::backend::support::percent;
use crate::claim::{Claim, ClaimId, FencingToken, Mode};
use crate::error::{Error, ErrorKind, Result};
use crate::fnv;
use crate::name::Name;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What finds a held claim in its store, from any process: who has it may keep the claim, give it
/// back or take it over. Got by [`Guard::hand_out`](crate::Guard::hand_out).
///
/// It is written as one line of text, one word in a shell, and read from that again. The claim's id in
/// it is what the store checks: who can read a ticket can give the lock back, so keep it where a
/// password would be kept. The text has a check sum, against a ticket that was cut or changed by
/// accident; it is not signed.
///
/// ```
/// use lockkeeper::{Mode, Name, Ticket};
/// use std::time::Duration;
///
/// # fn main() -> lockkeeper::Result<()> {
/// let id = "00112233445566778899aabbccddeeff".parse()?;
/// let ticket = Ticket::new(Name::new("orders/42")?, Mode::Exclusive, id, Duration::from_secs(30));
/// let text = ticket.to_string();
/// assert_eq!(text, "lk1:x:30000:00112233445566778899aabbccddeeff:-:c813a799:orders/42");
/// assert_eq!(text.parse::<Ticket>()?, ticket);
/// assert!(text.replace("42", "43").parse::<Ticket>().is_err());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Ticket {
    /// What is claimed.
    pub name: Name,
    /// How it is shared.
    pub mode: Mode,
    /// The claim's own id.
    pub id: ClaimId,
    /// By how much a renewal extends the claim. Where several keep one claim, a renewal takes nothing from
    /// the others: it is kept for as long as any of them was told.
    pub ttl: Duration,
    /// The fencing token of the grant, where the store gave one.
    pub token: Option<FencingToken>,
}

impl Ticket {
    /// That of a claim of which these are known, for instance because it was asked for by its id.
    /// Its token is not known.
    pub fn new(name: Name, mode: Mode, id: ClaimId, ttl: Duration) -> Self {
        Self { name, mode, id, ttl, token: None }
    }

    /// That of a claim.
    pub fn of(claim: &Claim) -> Self {
        Self::new(claim.name.clone(), claim.mode, claim.id, claim.ttl)
    }

    /// The same with this token.
    pub fn with_token(self, token: Option<FencingToken>) -> Self {
        Self { token, ..self }
    }

    /// The same claim, extended by `ttl` at a time.
    pub fn with_ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }
}

/// What the text of every ticket begins with, for people and for programs that read a later version.
const VERSION: &str = "lk1";

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Exclusive => "x".to_owned(),
            Mode::Shared => "s".to_owned(),
            Mode::Permit { of } => format!("p{of}"),
        };
        let token = self.token.map_or_else(|| "-".to_owned(), |token| token.to_string());
        let ttl = u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX);
        let head = format!("{VERSION}:{mode}:{ttl}:{}:{token}", self.id);
        // Letters of every language stay readable; what a shell or a terminal takes for more is coded.
        let plain = |_, c: char| c.is_alphanumeric() || "-_./@+=".contains(c);
        let name = percent::encode(self.name.as_str(), plain);
        write!(f, "{head}:{:08x}:{name}", check_sum(&head, &name))
    }
}

fn check_sum(head: &str, name: &str) -> u32 {
    let hash = fnv::hash_128(format!("{head}:{name}").as_bytes());
    let bytes = hash.to_be_bytes();
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().fold(0, |sum, word| sum ^ u32::from_be_bytes(*word))
}

/// As [`Display`](fmt::Display) writes it; blanks and line breaks around it are left out.
impl FromStr for Ticket {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = |why: &str| {
            // Not the text itself: it may be a ticket all the same, and errors are logged.
            let message = format!("this is not a ticket: {why}; give it whole, as it was printed");
            Error::new(ErrorKind::Config, message)
        };
        let text = text.trim();
        let fields: Vec<&str> = text.splitn(7, ':').collect();
        if fields[0] != VERSION {
            return Err(refused("it does not begin with \"lk1:\""));
        }
        let [_, mode, ttl, id, token, sum, name] = fields[..] else {
            return Err(refused("it has fewer than seven fields"));
        };
        let head = [VERSION, mode, ttl, id, token].join(":");
        if sum != format!("{:08x}", check_sum(&head, name)) {
            return Err(refused("its check sum is wrong, so it was cut or changed"));
        }
        let mode = match (mode, mode.strip_prefix('p').map(str::parse)) {
            ("x", _) => Some(Mode::Exclusive),
            ("s", _) => Some(Mode::Shared),
            (_, Some(Ok(of))) if of > 0 => Some(Mode::Permit { of }),
            _ => None,
        };
        let token = match token {
            "-" => Some(None),
            number => number.parse().ok().and_then(FencingToken::new).map(Some),
        };
        let ttl = ttl.parse().ok().map(Duration::from_millis);
        let name = percent::decode(name).and_then(|name| Name::new(&name).ok());
        match (mode, ttl, id.parse().ok(), token, name) {
            (Some(mode), Some(ttl), Some(id), Some(token), Some(name)) => {
                Ok(Self { name, mode, id, ttl, token })
            }
            _ => Err(refused("one of its fields makes no sense")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ticket(name: &str, mode: Mode, id: u128, ms: u32, token: u64) -> Ticket {
        let id = format!("{id:032x}").parse().unwrap();
        Ticket::new(Name::new(name).unwrap(), mode, id, Duration::from_millis(ms.into()))
            .with_token(FencingToken::new(token))
    }

    #[test]
    fn its_text_is_pinned() {
        let one = ticket(
            "orders/42 €'\u{202e}",
            Mode::Permit { of: 3 },
            255,
            1500,
            1_837_302_911_000_123,
        );
        let text = "lk1:p3:1500:000000000000000000000000000000ff:1837302911000123:\
                    0eacdb31:orders/42%20%E2%82%AC%27%E2%80%AE";
        assert_eq!(one.to_string(), text);
        assert_eq!(format!("\n {text} \n").parse::<Ticket>().unwrap(), one);
        assert!(ticket("备份", Mode::Shared, 1, 1, 0).to_string().ends_with(":备份"));
        let endless = one.with_ttl(Duration::MAX).to_string().parse::<Ticket>().unwrap();
        assert_eq!(endless.ttl, Duration::from_millis(u64::MAX));
    }

    #[test]
    fn what_is_no_ticket_is_refused_and_not_repeated() {
        let whole = ticket("orders/42", Mode::Exclusive, 77, 30_000, 5).to_string();
        let cut = &whole[..whole.len() - 1];
        let other_version = whole.replacen("lk1", "lk2", 1);
        for wrong in ["", "lk1", "orders/42", "lk1:x:1:2:3:4:5", cut, &other_version] {
            let error = wrong.parse::<Ticket>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{wrong}");
            assert!(wrong.len() < 5 || !error.to_string().contains(wrong), "{error}");
        }
    }

    proptest! {
        #[test]
        fn there_and_back(
            name in "[^\\p{Cc}]{1,40}", of in 1_u32.., id in any::<u128>(), ms in any::<u32>(),
            token in any::<u64>(), mode in 0..3_usize,
        ) {
            let mode = [Mode::Exclusive, Mode::Shared, Mode::Permit { of }][mode];
            let one = ticket(&name, mode, id, ms, token);
            let text = one.to_string();
            prop_assert!(!text.chars().any(char::is_whitespace));
            prop_assert_eq!(text.parse::<Ticket>().unwrap(), one);
        }

        /// Whatever is written in a field by someone who can make the check sum fit: it is refused without
        /// being repeated, or read as what it says.
        #[test]
        fn what_was_made_to_fit_is_refused_or_read(
            field in 0_usize..7, wrong in "\\PC{0,40}|[0-9a-fx:p%+-]{0,40}|p?[0-9]{1,25}",
            sum_fits in prop::bool::weighted(0.9),
        ) {
            let whole = ticket("orders/4711", Mode::Shared, 0xabcdef, 30_000, 123_456_789).to_string();
            let mut fields: Vec<&str> = whole.splitn(7, ':').collect();
            fields[field] = &wrong;
            let text = fields.join(":");
            let mut fields: Vec<&str> = text.splitn(7, ':').collect();
            let sum = format!("{:08x}", check_sum(&fields[..5].join(":"), fields[6]));
            if sum_fits {
                fields[5] = &sum;
            }
            match fields.join(":").parse::<Ticket>() {
                Ok(read) => prop_assert_eq!(read.to_string().parse::<Ticket>().unwrap(), read),
                Err(error) => {
                    prop_assert_eq!(error.kind(), ErrorKind::Config);
                    prop_assert!(wrong.len() < 20 || !error.to_string().contains(&wrong));
                }
            }
        }

        #[test]
        fn any_text_is_refused_and_none_is_fatal(text in "(lk1)?[\\PC:]{0,200}") {
            prop_assert!(text.parse::<Ticket>().is_err());
        }

        /// Whatever becomes of one letter, it is not read as another ticket.
        #[test]
        fn a_letter_that_changed_is_noticed(at in 4_usize..70, letter in "[0-9a-fx:/-]") {
            let whole = ticket("orders/4711", Mode::Exclusive, 0xabcdef, 30_000, 123_456_789).to_string();
            let at = at.min(whole.len() - 1);
            let changed = format!("{}{letter}{}", &whole[..at], &whole[at + 1..]);
            prop_assume!(changed != whole);
            prop_assert!(changed.parse::<Ticket>().is_err());
        }
    }
}
