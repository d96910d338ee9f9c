//! One connection, both directions.

use super::Shared;
use super::counters::one_more;
use super::plan::{Direction, Flow, Plan, Side};
use super::pump::{Pump, Wounds};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// How an order ends a connection.
enum Fate {
    Reset,
    Forget(Side),
}

pub(super) async fn run(shared: Arc<Shared>, mut client: TcpStream, number: u64) {
    let mut plan = shared.plan.subscribe();
    let birth = *plan.borrow_and_update();
    let Ok(mut server) = TcpStream::connect(shared.upstream).await else {
        return reset(client);
    };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let wounds = Wounds::default();
    let fate = {
        let (client_reads, client_writes) = client.split();
        let (server_reads, server_writes) = server.split();
        let there = (client_reads, server_writes);
        let back = (server_reads, client_writes);
        let there = Pump::new(&shared, &wounds, Direction::ToServer, there, number);
        let back = Pump::new(&shared, &wounds, Direction::ToClient, back, number);
        tokio::select! {
            biased;
            fate = fate(&mut plan, &birth, &wounds) => Some(fate),
            ends = async { tokio::try_join!(there.run(), back.run()) } => match ends {
                Ok(_) => None,
                // One side broke off: reset the other too.
                Err(_) => return reset_both(client, server),
            },
        }
    };
    match fate {
        None => {}
        Some(Fate::Reset) => {
            one_more(&shared.tally.resets);
            reset_both(client, server);
        }
        Some(Fate::Forget(side)) => {
            one_more(&shared.tally.half_open);
            let (gone, left, direction) = match side {
                Side::Server => (server, client, Direction::ToServer),
                Side::Client => (client, server, Direction::ToClient),
            };
            drop(gone);
            listen_in_vain(&shared, left, direction).await;
        }
    }
}

/// Waits for an order that ends the connection.
async fn fate(plan: &mut watch::Receiver<Plan>, birth: &Plan, wounds: &Wounds) -> Fate {
    loop {
        let now = *plan.borrow_and_update();
        let lost = wounds.lost.load(Ordering::SeqCst) && !now.flows.contains(&Flow::Swallow);
        let silent = wounds.silent.load(Ordering::SeqCst) && now.heals > birth.heals;
        if now.resets > birth.resets || lost || silent {
            return Fate::Reset;
        }
        for side in [Side::Client, Side::Server] {
            if now.forgets[side as usize] > birth.forgets[side as usize] {
                return Fate::Forget(side);
            }
        }
        if plan.changed().await.is_err() {
            return Fate::Reset;
        }
    }
}

/// One side goes on as if the other were still there, until a heal or a reset: then it is reset.
async fn listen_in_vain(shared: &Shared, mut left: TcpStream, direction: Direction) {
    let mut plan = shared.plan.subscribe();
    let birth = *plan.borrow_and_update();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        tokio::select! {
            biased;
            changed = plan.changed() => {
                let now = *plan.borrow_and_update();
                if changed.is_err() || now.heals > birth.heals || now.resets > birth.resets {
                    return reset(left);
                }
            }
            read = left.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return,
                Ok(length) => shared.tally.swallowed(direction, length),
            },
        }
    }
}

fn reset_both(client: TcpStream, server: TcpStream) {
    reset(client);
    reset(server);
}

/// Closes with a reset (RST) instead of an orderly end (FIN).
fn reset(stream: TcpStream) {
    // Fails only on a socket that is already dead, which is the desired result.
    let _ = stream.set_zero_linger();
}
