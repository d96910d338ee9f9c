//! Claims that are kept by their tickets, in the memory backend.

use super::secs;
use crate::backend::memory::Memory;
use crate::backend::{
    Backend, Claim, Lease, Mode, Moment, Name, Owner, Patience, Primitive, Ticket,
};
use crate::claim::ClaimIds;
use std::sync::Arc;

fn claim(ids: &ClaimIds) -> Claim {
    let id = ids.next();
    Claim {
        id,
        name: Name::new("name").unwrap(),
        mode: Mode::Exclusive,
        primitive: Primitive::Lock,
        owner: Owner::from_id(id.to_string()),
        ttl: secs(600),
        identity: "".into(),
        note: "".into(),
        by_id: false,
    }
}

/// Others that have the claim count on what they were told.
#[tokio::test(start_paused = true)]
async fn a_renewal_with_a_shorter_ttl_shortens_nothing() {
    let (store, ids) = (Arc::new(Memory::new()), ClaimIds::new().unwrap());
    let first = claim(&ids);
    let begun = Moment::now();
    let held = store.acquire(&first, &Patience::none()).await.unwrap().expect("it is free");
    let (waits, second) = (store.clone(), claim(&ids));
    let waiting = tokio::spawn(async move { waits.acquire(&second, &Patience::endless()).await });
    tokio::time::sleep(secs(1)).await;
    let shorter = Ticket { ttl: secs(5), ..Ticket::of(&first) };
    let mut lease: Box<dyn Lease> = store.lease_of(&shorter).unwrap();
    lease.renew().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_some());
    let waited = Moment::now().since(begun);
    assert!(waited >= secs(600), "two hold it after {waited:?}");
    assert!(waited < secs(601), "it was free, and yet waited for: {waited:?}");
    drop(held);
}
