//! A backend that promises the least there is: what it lacks must be refused.

use async_trait::async_trait;
use lockkeeper::Result;
use lockkeeper::backend::memory::Memory;
use lockkeeper::backend::{Backend, Capability, Claim, Grant, Patience, Reach};
use std::fmt;

/// Memory without its queue, tokens, modes and inspector: waiters poll.
#[derive(Debug)]
pub(crate) struct Least(Memory);

impl Least {
    pub(crate) fn new() -> Self {
        Self(Memory::new())
    }
}

#[async_trait]
impl Backend for Least {
    fn capability(&self) -> Capability {
        let mut capability = Capability::least(Reach::Process);
        // Its claims are Memory's, and that lets an owner in again from anywhere.
        capability.reentrant = true;
        capability
    }

    async fn acquire(&self, claim: &Claim, _: &Patience) -> Result<Option<Grant>> {
        let grant = self.0.acquire(claim, &Patience::none()).await?;
        Ok(grant.map(|mut grant| {
            grant.token = None;
            grant
        }))
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.0.withdraw(claim).await
    }
}

impl fmt::Display for Least {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "least({})", self.0)
    }
}
