//! What the unsafe recipes of Redis are known to break. A promise they keep after all is an
//! error here, as is one they break in another way.

type Broken = &'static [(&'static str, &'static str)];

/// What the store at `url` is known to break, if it is an unsafe one.
pub(crate) fn broken_by(url: &str) -> Option<Broken> {
    let (_, options) = url.split_once('?')?;
    options.split('&').find_map(|option| match option {
        "recipe=setnx-expire" => Some(SETNX_EXPIRE),
        "recipe=getset" => Some(GETSET),
        _ => None,
    })
}

const TAKEN_TWICE: &str = "could be taken a second time";
const NEVER_FREE: &str = "was not free within";

const SETNX_EXPIRE: Broken = &[
    // DEL does not ask whose the lock is.
    ("expiry::a_late_release_leaves_the_next_holder_alone", TAKEN_TWICE),
    ("loss::a_renewal_that_arrives_late_does_not_bring_it_back", TAKEN_TWICE),
    ("loss::a_renewal_that_is_answered_late_does_not_bring_it_back", TAKEN_TWICE),
    ("doubt::a_release_made_twice_leaves_the_next_holder_alone", TAKEN_TWICE),
    ("processes::a_paused_holder_finds_that_it_lost_it", TAKEN_TWICE),
    // Whether the key is ours nobody can tell, so nobody can take it back.
    ("doubt::a_lock_whose_answer_was_lost_is_withdrawn", NEVER_FREE),
    ("doubt::a_withdrawal_is_tried_again", NEVER_FREE),
    ("doubt::a_withdrawal_made_twice_leaves_the_next_holder_alone", NEVER_FREE),
    ("loss::a_release_of_what_the_store_no_longer_has_says_so", NEVER_FREE),
    // EXPIRE counts whole seconds.
    ("expiry::an_expired_claim_is_free_without_anyone_waiting", "could not be taken"),
    // There is no renewal.
    ("expiry::a_renewed_claim_outlives_its_ttl", TAKEN_TWICE),
    ("loss::failed_renewals_neither_extend_nor_end_it", "expired before the store answered"),
    ("bounds::max_hold_ends_a_hold_that_goes_on", "the claim expired first"),
    ("events::a_hold_is_told_from_waiting_to_released", "then came InJeopardy"),
    ("blocking::it_needs_no_runtime", "no renewal was answered in time"),
];

const GETSET: Broken = &[
    // DEL does not ask whose the lock is, as long as the ttl is not over.
    ("doubt::a_release_made_twice_leaves_the_next_holder_alone", TAKEN_TWICE),
    // Whether the key is ours nobody can tell, so nobody can take it back.
    ("doubt::a_lock_whose_answer_was_lost_is_withdrawn", NEVER_FREE),
    ("doubt::a_withdrawal_is_tried_again", NEVER_FREE),
    ("doubt::a_withdrawal_made_twice_leaves_the_next_holder_alone", NEVER_FREE),
    ("loss::a_release_of_what_the_store_no_longer_has_says_so", NEVER_FREE),
    // There is no renewal.
    ("expiry::a_renewed_claim_outlives_its_ttl", TAKEN_TWICE),
    ("loss::failed_renewals_neither_extend_nor_end_it", "expired before the store answered"),
    ("bounds::max_hold_ends_a_hold_that_goes_on", "the claim expired first"),
    ("events::a_hold_is_told_from_waiting_to_released", "then came InJeopardy"),
    ("blocking::it_needs_no_runtime", "no renewal was answered in time"),
];
