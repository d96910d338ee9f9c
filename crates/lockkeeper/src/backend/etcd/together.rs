//! Several names in one transaction.

use super::debt::Debt;
use super::queue::{Entry, Etcd};
use super::requests::{Ticket, enter_all, reads};
use crate::backend::{Claim, Mode, Moment, Together};
use crate::error::Result;

/// How many names fit into one transaction of a server with its usual settings, with room for
/// what is compared beside them.
const MOST: usize = 100;

/// Takes all of them, or none if another has one.
pub(super) async fn acquire(etcd: &Etcd, claims: &[Claim]) -> Result<Together> {
    let shared = &*etcd.shared;
    let alone = |claim: &Claim| claim.mode == Mode::Exclusive;
    if claims.len() > MOST || !claims.iter().all(alone) {
        return Ok(Together::OneByOne);
    }
    let term = shared.session.term().await?;
    let ticket = |claim| Ticket::new(&shared.prefix, &shared.keys, claim, &term);
    let tickets: Vec<Ticket> = claims.iter().map(ticket).collect();
    let sent = Moment::now();
    let request = enter_all(&shared.prefix, claims, &tickets, &term);
    let (answer, asked_twice) = match shared.ask_alive(&term, &request).await {
        Ok(Some(answer)) => answer,
        Ok(None) => return Ok(Together::OneByOne),
        Err(error) => {
            for (claim, ticket) in claims.iter().zip(&tickets) {
                shared.debts.owe(claim.id, Debt::in_doubt(ticket, term.lease));
            }
            return Err(error);
        }
    };
    let revision = answer.header.map_or(0, |header| header.revision);
    if !answer.succeeded {
        let taken = reads(answer.responses).zip(&tickets).position(|(first, ticket)| {
            // Our own is there when this was asked before and the answer lost.
            first.kvs.iter().any(|kv| ticket.line.has(&kv.key) && kv.key != ticket.key.bytes())
        });
        if taken.is_none() || asked_twice {
            // Whatever was in the way, one after another it is found out.
            for (claim, ticket) in claims.iter().zip(&tickets) {
                shared.debts.pay(claim.id, &Debt::in_doubt(ticket, term.lease)).await?;
            }
        }
        return Ok(taken.map_or(Together::OneByOne, Together::Busy));
    }
    let entries = tickets.into_iter().map(|ticket| Entry {
        ticket,
        term: term.clone(),
        created: revision,
        seen: revision,
        asked_twice,
    });
    let grants = claims.iter().zip(entries).map(|(claim, entry)| etcd.grant(claim, entry, sent));
    // The session may be over for all of them; then those without a grant are owed.
    let grants: Option<Vec<_>> = grants.collect();
    Ok(grants.map_or(Together::OneByOne, Together::Granted))
}
