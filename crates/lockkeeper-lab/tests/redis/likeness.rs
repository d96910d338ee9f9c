//! Whatever is done to it, a line in Redis looks like one in memory.

use crate::{cases, eventually, keeper};
use anyhow::{Context, Result};
use lockkeeper::{Guard, Keeper, Lock, Owner};
use lockkeeper_lab::dice::Dice;
use lockkeeper_lab::server::Lab;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinHandle;

cases!(random_claims_stand_in_the_same_order_as_in_memory);

const NAME: &str = "line";
const ROUNDS: u64 = 40;
const STEPS: u64 = 25;

/// One of the two stores, and what is going on in it.
struct Side {
    keepers: Vec<Keeper>,
    waiting: BTreeMap<u64, JoinHandle<lockkeeper::Result<Guard>>>,
    held: BTreeMap<u64, Guard>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Exclusive,
    Shared,
    Permit(u32),
}

impl Side {
    fn new(keepers: Vec<Keeper>) -> Self {
        Self { keepers, waiting: BTreeMap::new(), held: BTreeMap::new() }
    }

    fn lock(&self, number: u64, owner: u64, kind: Kind) -> Result<Lock> {
        let keeper = &self.keepers[usize::try_from(number)? % self.keepers.len()];
        let lock = match kind {
            Kind::Exclusive => keeper.lock(NAME),
            Kind::Shared => keeper.rw_lock(NAME).read(),
            Kind::Permit(of) => keeper.semaphore(NAME, of),
        };
        let label = format!("owner-{owner}");
        let lock = lock.note(&label).ttl(Duration::from_secs(600));
        // The others have no name, and pass on what they hold.
        Ok(if owner.is_multiple_of(2) { lock.owner(&Owner::new(&label)?) } else { lock })
    }

    /// Who holds and who waits, as far as it should be the same.
    async fn look(&mut self) -> Result<String> {
        for number in self.waiting.keys().copied().collect::<Vec<_>>() {
            if self.waiting[&number].is_finished() {
                let outcome = self.waiting.remove(&number);
                if let Some(Ok(Ok(guard))) = match outcome {
                    Some(handle) => Some(handle.await),
                    None => None,
                } {
                    self.held.insert(number, guard);
                }
            }
        }
        let view = self.keepers[0].show(NAME).await?;
        let mut holders: Vec<_> =
            view.holders.iter().map(|holder| format!("{} {}", holder.note, holder.mode)).collect();
        // Granted together, their order is of no consequence.
        holders.sort();
        let waiters: Vec<_> =
            view.waiters.iter().map(|waiter| format!("{} {}", waiter.note, waiter.mode)).collect();
        let guards: Vec<_> = self.held.keys().collect();
        Ok(format!("held {holders:?}\nwaiting {waiters:?}\nguards {guards:?}"))
    }
}

async fn random_claims_stand_in_the_same_order_as_in_memory(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    for round in 0..ROUNDS {
        let store = std::sync::Arc::new(lockkeeper::backend::memory::Memory::new());
        let memory = vec![Keeper::new(store.clone())?, Keeper::new(store)?];
        let redis = vec![keeper(&server).await?, keeper(&server).await?];
        let mut sides = [Side::new(memory), Side::new(redis)];
        let mut dice = Dice::new(round);
        let mut story = format!("round {round}");
        for number in 0..STEPS {
            story += "\n";
            let done = step(&mut sides, &mut dice, number).await;
            story += &done.with_context(|| format!("after\n{story}"))?;
            let [memory, redis] = &mut sides;
            let mut seen = (String::new(), String::new());
            eventually(&format!("the same in both after\n{story}"), async || {
                seen = (memory.look().await?, redis.look().await?);
                match seen.0 == seen.1 {
                    true => Ok(Some(())),
                    false => anyhow::bail!("in memory:\n{}\nin Redis:\n{}", seen.0, seen.1),
                }
            })
            .await;
        }
        for side in &mut sides {
            std::mem::take(&mut side.waiting).values().for_each(JoinHandle::abort);
            std::mem::take(&mut side.held).into_values().for_each(drop);
            for keeper in &side.keepers {
                assert!(keeper.close(crate::PATIENT).await, "they leave");
            }
        }
    }
    Ok(())
}

/// Does one thing to both, and says what.
async fn step(sides: &mut [Side; 2], dice: &mut Dice, number: u64) -> Result<String> {
    let pick = |keys: Vec<u64>, dice: &mut Dice| -> Option<u64> {
        let at = dice.roll(keys.len().max(1) as u64);
        keys.get(usize::try_from(at).ok()?).copied()
    };
    match dice.roll(10) {
        0..5 => {
            // Few owners, so that some enter again; none waits twice, whose order is open.
            let owner = dice.roll(3) * 100 + number;
            let owner = if dice.roll(3) == 0 { dice.roll(3) } else { owner };
            let kind = match dice.roll(4) {
                0 | 1 => Kind::Exclusive,
                2 => Kind::Shared,
                _ => Kind::Permit(2),
            };
            let view = sides[0].keepers[0].show(NAME).await?;
            let label = format!("owner-{owner}");
            let involved = view.waiters.iter().any(|waiter| waiter.note == label);
            if involved {
                return Ok("nothing".to_owned());
            }
            for side in sides {
                let lock = side.lock(number, owner, kind)?;
                let waiter = tokio::spawn(async move { lock.acquire().await });
                side.waiting.insert(number, waiter);
                eventually("it has asked", async || {
                    let view = side.keepers[0].show(NAME).await?;
                    let waits = view.waiters.iter().any(|waiter| waiter.note == label);
                    Ok((waits || side.waiting[&number].is_finished()).then_some(()))
                })
                .await;
            }
            Ok(format!("{number}: {label} asks for {kind:?}"))
        }
        5..8 => {
            let Some(which) = pick(sides[0].held.keys().copied().collect(), dice) else {
                return Ok("nothing".to_owned());
            };
            for side in sides {
                if let Some(guard) = side.held.remove(&which) {
                    guard.release().await?;
                }
            }
            Ok(format!("{which} is released"))
        }
        8 => {
            let Some(which) = pick(sides[0].waiting.keys().copied().collect(), dice) else {
                return Ok("nothing".to_owned());
            };
            for side in sides {
                if let Some(waiter) = side.waiting.remove(&which) {
                    waiter.abort();
                }
            }
            Ok(format!("{which} gives up"))
        }
        _ => {
            let Some(which) = pick(sides[0].held.keys().copied().collect(), dice) else {
                return Ok("nothing".to_owned());
            };
            for side in sides {
                let token = side.held.get(&which).and_then(Guard::token);
                if let Some(token) = token {
                    side.keepers[0].break_hold(NAME, token, "in the way").await?;
                    side.held.retain(|_, guard| guard.token() != Some(token));
                }
            }
            Ok(format!("{which} is broken"))
        }
    }
}
