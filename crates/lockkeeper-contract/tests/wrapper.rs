//! A backend made of two others, written from public items alone: the second follows the first.

use async_trait::async_trait;
use lockkeeper::backend::memory::Memory;
use lockkeeper::backend::{
    Alarm, Backend, Background, Capability, Claim, Grant, Inspector, Lease, LossReason, Patience,
    Release, Sequencer, Signal, Standing,
};
use lockkeeper::{Keeper, Result};
use lockkeeper_contract::{Faulty, Renewals, Subject, verdicts};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long the second may take to follow.
const LIMIT: Duration = Duration::from_secs(1);

/// A claim is held when both have granted it. The first decides on the order; the second must never
/// be in the way, and if it is, or is too slow, the first is given back.
#[derive(Debug)]
struct Following {
    first: Arc<dyn Backend>,
    second: Arc<dyn Backend>,
    background: OnceLock<Background>,
}

impl Following {
    fn new(first: Arc<dyn Backend>, second: Arc<dyn Backend>) -> Self {
        Self { first, second, background: OnceLock::new() }
    }

    fn background(&self) -> &Background {
        self.background.get_or_init(Background::new)
    }
}

#[async_trait]
impl Backend for Following {
    fn capability(&self) -> Capability {
        let mut both = self.first.capability();
        (both.atomic_multi, both.portable) = (false, false);
        both
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        let Some(mut first) = self.first.acquire(claim, patience).await? else { return Ok(None) };
        let (second, claim) = (self.second.clone(), claim.clone());
        let followed =
            self.background().acquire_within(second, claim, &Patience::endless(), LIMIT).await;
        match followed {
            Ok(Some(second)) => {
                let sent = first.sent.min(second.sent);
                let valid_for = first.valid_for.min(second.valid_for);
                let lease = Both { first: first.lease, second: second.lease };
                Ok(Some(Grant::new(Box::new(lease), first.token, sent, valid_for)))
            }
            // One that cannot follow counts as busy: nobody then withdraws the claim there, so that
            // what it wins too late is for `acquire_within` to give back.
            _ => {
                first.lease.release(&Release::now()).await?;
                Ok(None)
            }
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.second.withdraw(claim).await?;
        self.first.withdraw(claim).await
    }

    fn attach(&self, background: &Background) {
        self.first.attach(background);
        self.second.attach(background);
        let _ = self.background.set(background.clone());
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        self.first.inspector()
    }

    fn sequencer(&self) -> Option<&dyn Sequencer> {
        self.first.sequencer()
    }
}

impl fmt::Display for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} followed by {}", self.first, self.second)
    }
}

#[derive(Debug)]
struct Both {
    first: Box<dyn Lease>,
    second: Box<dyn Lease>,
}

#[async_trait]
impl Lease for Both {
    async fn renew(&mut self) -> Result<Standing> {
        match self.first.renew().await? {
            Standing::Held => self.second.renew().await,
            Standing::HeldFor(first) => Ok(match self.second.renew().await? {
                Standing::HeldFor(second) => Standing::HeldFor(first.min(second)),
                Standing::Held => Standing::HeldFor(first),
                lost => lost,
            }),
            lost => Ok(lost),
        }
    }

    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        // First the one that nobody waits at.
        let followed = self.second.release(&Release::after(how.stay())).await;
        self.first.release(how).await?;
        followed
    }

    fn watch(&mut self, alarm: Alarm) {
        self.first.watch(alarm.clone());
        self.second.watch(Alarm::new(move |signal| match signal {
            Signal::Lost(reason) => {
                let reason = format!("the second store says so: {reason}");
                alarm.ring(LossReason::Broken { reason });
            }
            other => alarm.signal(other),
        }));
    }

    fn guards_changed(&mut self, guards: usize) {
        self.first.guards_changed(guards);
    }
}

fn two() -> (Arc<dyn Backend>, Arc<Faulty>) {
    let second = Arc::new(Faulty::new(Arc::new(Memory::new())));
    (Arc::new(Following::new(Arc::new(Memory::new()), second.clone())), second)
}

#[test]
fn it_keeps_the_contract() {
    let (store, _) = two();
    let subject = Subject::from_fn("following", move || {
        let handle = store.clone();
        async move { Ok(handle) }
    });
    let groups =
        ["exclusion", "waiting", "expiry", "loss", "doubt", "cancel", "tokens", "reentry", "multi"];
    let verdicts = verdicts(&subject, &groups);
    assert!(verdicts.len() > 40, "only {} cases were tried", verdicts.len());
    for verdict in verdicts {
        assert_eq!(verdict.outcome, Ok(()), "{}", verdict.name);
    }
}

#[tokio::test]
async fn a_loss_at_the_second_is_heard() {
    let (store, second) = two();
    let keeper = Keeper::new(store).unwrap();
    let guard = keeper.lock("a").acquire().await.unwrap();
    let (view, token) = (second.inspector().unwrap(), guard.name().clone());
    let held = view.show(&token).await.unwrap().holders[0].token.unwrap();
    assert!(view.break_hold(&token, held, "enough").await.unwrap());
    guard.lost().await;
    let reason = guard.lost_reason().unwrap().to_string();
    assert!(reason.contains("second store") && reason.contains("enough"), "{reason}");
}

#[tokio::test]
async fn a_second_that_is_too_slow_is_not_waited_for_and_keeps_nothing() {
    let (store, second) = two();
    let keeper = Keeper::new(store).unwrap();
    second.delay_next_answer(LIMIT * 2);
    second.renewals(Renewals::Pass);
    assert!(keeper.lock("a").try_acquire().await.unwrap().is_none());
    let name = lockkeeper::Name::new("a").unwrap();
    let there = second.inspector().unwrap().show(&name).await.unwrap();
    assert_eq!(there.holders.len(), 1, "unknown: the second granted nothing meanwhile");
    // What it granted in the end is given back.
    assert!(keeper.close(Duration::from_secs(20)).await);
    assert!(second.inspector().unwrap().show(&name).await.unwrap().holders.is_empty());
    keeper.lock("a").try_acquire().await.unwrap().unwrap().release().await.unwrap();
}
