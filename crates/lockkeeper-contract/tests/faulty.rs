//! The wrapper that fails on command passes everything else on.

use lockkeeper::backend::memory::Memory;
use lockkeeper::{ErrorKind, Keeper};
use lockkeeper_contract::{Faulty, Renewals, Subject, verdicts};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn faults_come_as_ordered_and_go_when_healed() {
    let faulty = Arc::new(Faulty::new(Arc::new(Memory::new())));
    assert_eq!(faulty.to_string(), "faulty(memory:)");
    let keeper = Keeper::new(faulty.clone()).unwrap();
    let lock = keeper.lock("orders/42").ttl(Duration::from_secs(60));

    faulty.lose_answers(1);
    assert_eq!(lock.try_acquire().await.unwrap_err().kind(), ErrorKind::Unavailable);

    faulty.fail_releases(1);
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Unavailable);

    faulty.renewals(Renewals::Hang);
    faulty.lose_answers(9);
    faulty.heal();
    lock.acquire().await.unwrap().release().await.unwrap();
}

#[test]
fn without_a_fault_it_keeps_the_contract_of_what_it_wraps() {
    let store = Arc::new(Faulty::new(Arc::new(Memory::new())));
    let subject = Subject::from_fn("faulty", move || {
        let handle: Arc<dyn lockkeeper::backend::Backend> = store.clone();
        async move { Ok(handle) }
    });
    let verdicts = verdicts(&subject, &["exclusion", "inspection", "sharing", "tokens"]);
    assert!(!verdicts.is_empty());
    for verdict in verdicts {
        assert_eq!(verdict.outcome, Ok(()), "{}", verdict.name);
    }
}
