//! `lock`, `keep` and `unlock`: locks that outlive the process that took them.

pub(crate) mod arguments;
mod keep;
mod lock;
pub(crate) mod read;

pub(crate) use keep::{keep, unlock};
pub(crate) use lock::{Interrupt, lock};

use crate::claim;
use crate::exit::Failure;
use lockkeeper::{Error, ErrorKind, Keeper, Ticket, recipes};

/// Connects to a store that other processes can reach, and whose locks have tickets.
///
/// The library would refuse the others, too, but only when the lock was waited for and taken.
pub(crate) async fn connect(url: &str) -> Result<Keeper, Failure> {
    let keeper = claim::connect(url).await?;
    if keeper.capability().portable {
        return Ok(keeper);
    }
    let fit = recipes().iter().filter(|recipe| {
        let can = &recipe.capability;
        can.portable && can.sound && can.reach != lockkeeper::backend::Reach::Process
    });
    let fit: Vec<_> = fit.map(|recipe| recipe.example).collect();
    Err(Failure::usage(format!(
        "{keeper} has no tickets: there only the process that took a lock can keep it. Use `lockkeeper \
         run`, or one of {}",
        fit.join(", ")
    )))
}

/// Why a ticket was of no use, and what to do about it.
pub(crate) fn refusal(error: Error, ticket: &Ticket, keeper: &Keeper) -> Failure {
    let kind = error.kind();
    let Failure { code, message } = error.into();
    let message = match kind {
        ErrorKind::Lost => format!(
            "{message}. It ran out, was given back or broken, or was never in {keeper} (see --store): \
             others may have it, so stop what it was for; `lockkeeper lock` takes it anew"
        ),
        ErrorKind::Unavailable => format!(
            "{message}; {:?} is locked for as long as it was before: try again with the same ticket",
            ticket.name
        ),
        _ => message,
    };
    Failure { code, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper::{ClaimId, Mode, Name};
    use std::time::Duration;

    #[tokio::test]
    async fn what_to_do_next_is_said() {
        let keeper = lockkeeper::connect("memory:").await.unwrap();
        let (name, id) = (Name::new("deploy").unwrap(), ClaimId::random().unwrap());
        let ticket = Ticket::new(name, Mode::Exclusive, id, Duration::from_secs(30));
        for (kind, code, hint) in [
            (ErrorKind::Lost, 79, "`lockkeeper lock` takes it anew"),
            (ErrorKind::Unavailable, 69, "\"deploy\" is locked for as long as it was before"),
            (ErrorKind::Denied, 77, "no"),
        ] {
            let failure = refusal(Error::new(kind, "no"), &ticket, &keeper);
            assert_eq!(failure.code, code);
            assert!(
                failure.message.starts_with("no") && failure.message.contains(hint),
                "{failure:?}"
            );
        }
        let failure = connect("memory:").await.err().unwrap();
        assert_eq!(failure.code, 64, "{failure:?}");
    }
}
