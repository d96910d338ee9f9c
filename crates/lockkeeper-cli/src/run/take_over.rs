//! Goes on with locks that somebody took before.

use crate::claim::held::Held;
use crate::exit::Failure;
use crate::ticket::refusal;
use lockkeeper::{Guard, Keeper, Owner, Ticket};

/// Takes over all of them, or says why not.
///
/// Cancel safe: until the last of them is taken over, they stay with their tickets.
pub(crate) async fn take_over(keeper: &Keeper, tickets: &[Ticket]) -> Result<Held, Failure> {
    let mut taken = Undecided(Vec::new());
    for ticket in tickets {
        match keeper.take_over(ticket).await {
            Ok(guard) => taken.0.push(guard),
            Err(error) => {
                let Failure { code, message } = refusal(error, ticket, keeper);
                let message = format!("the command was not started: {message}");
                return Err(Failure { code, message });
            }
        }
    }
    let owner = common_owner(keeper, &taken.0).await;
    Ok(Held::TakenOver(std::mem::take(&mut taken.0), owner))
}

/// Guards that leave their locks as they are when they are dropped.
struct Undecided(Vec<Guard>);

impl Drop for Undecided {
    fn drop(&mut self) {
        std::mem::take(&mut self.0).into_iter().for_each(Guard::detach);
    }
}

/// The owner that the store has for all of them, by which a run within this one enters again. A ticket
/// does not know it. `None` where the store does not tell, or they were not taken together.
async fn common_owner(keeper: &Keeper, guards: &[Guard]) -> Option<Owner> {
    let mut common = None;
    for guard in guards {
        let token = guard.token()?;
        let view = keeper.show(guard.name().as_str()).await.ok()?;
        let ours = view.holders.into_iter().find(|holder| holder.token == Some(token))?;
        match &common {
            None => common = Some(ours.owner),
            Some(owner) if *owner == ours.owner => {}
            Some(_) => return None,
        }
    }
    common
}
