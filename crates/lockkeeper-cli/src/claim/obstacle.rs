//! What stands between us and the lock.

use super::terms::Terms;
use crate::text::visible;
use lockkeeper::backend::LockView;
use lockkeeper::{ErrorKind, Keeper, Mode, Owner};

/// Somebody who holds a name that we want.
pub(super) struct Obstacle {
    pub(super) name: String,
    pub(super) held: Option<Holders>,
    pub(super) place: Option<usize>,
    /// That others count another number of permits than we do.
    pub(super) disagreement: Option<String>,
}

pub(super) struct Holders {
    owners: Vec<Owner>,
    pub(super) line: String,
}

impl Obstacle {
    /// `None` if nothing is in the way at this moment, or the store did not answer.
    pub(super) async fn find(keeper: &Keeper, terms: &Terms, owner: &Owner) -> Option<Self> {
        let mut names: Vec<_> = terms.names.iter().collect();
        names.sort();
        for name in names {
            match keeper.show(name.as_str()).await {
                Ok(view) => {
                    if let Some(obstacle) = Self::seen_in(&view, terms.mode, owner) {
                        return Some(obstacle);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    let names: Vec<_> = terms.names.iter().map(|name| name.as_str()).collect();
                    let name = names.join(",");
                    return Some(Self { name, held: None, place: None, disagreement: None });
                }
                Err(_) => return None,
            }
        }
        None
    }

    fn seen_in(view: &LockView, mode: Mode, owner: &Owner) -> Option<Self> {
        let place = view.place_of(owner);
        // With several names, we hold the first ones ourselves.
        let ours = view.holders.iter().any(|holder| holder.owner == *owner);
        if ours && place.is_none() {
            return None;
        }
        let line = view.holders_line()?;
        let owners = view.holders.iter().map(|holder| holder.owner.clone()).collect();
        let held = Some(Holders { owners, line: visible(&line) });
        let disagreement = disagreement(view, mode);
        Some(Self { name: view.name.to_string(), held, place, disagreement })
    }

    /// Whether a new message would tell nothing new.
    pub(super) fn is_much_like(&self, other: &Self) -> bool {
        let owners = |it: &Self| it.held.as_ref().map(|held| held.owners.clone());
        self.name == other.name && self.place == other.place && owners(self) == owners(other)
    }
}

/// That a smaller number of permits than ours is in use, which then counts for everyone.
fn disagreement(view: &LockView, mode: Mode) -> Option<String> {
    let Mode::Permit { of: ours } = mode else { return None };
    let holders = view.holders.iter().map(|holder| holder.mode);
    let modes = holders.chain(view.waiters.iter().map(|waiter| waiter.mode));
    let numbers = modes.filter_map(|mode| match mode {
        Mode::Permit { of } => Some(of),
        _ => None,
    });
    let smallest = numbers.min().filter(|smallest| *smallest < ours)?;
    Some(format!(
        "others ask for one of {smallest} permits and --slots says {ours}: the smallest number counts, \
         so give everyone the same"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn another_number_of_permits_is_named() {
        let keeper = lockkeeper::connect("memory:").await.unwrap();
        let _first = keeper.semaphore("pool", 2).acquire().await.unwrap();
        let _second = keeper.semaphore("pool", 2).acquire().await.unwrap();
        let view = keeper.show("pool").await.unwrap();
        let said = disagreement(&view, Mode::Permit { of: 3 }).unwrap();
        assert!(said.contains("one of 2 permits") && said.contains("--slots says 3"), "{said}");
        assert_eq!(disagreement(&view, Mode::Permit { of: 2 }), None);
        assert_eq!(disagreement(&view, Mode::Permit { of: 1 }), None, "ours is what counts");
        assert_eq!(disagreement(&view, Mode::Exclusive), None);
    }
}
