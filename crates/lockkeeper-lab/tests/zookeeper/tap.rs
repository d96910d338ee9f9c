//! A relay before the server that counts what it is asked.

use anyhow::Result;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Requests by their number in the protocol.
type Counts = Arc<Mutex<HashMap<i32, usize>>>;

pub(crate) struct Tap {
    address: SocketAddr,
    counts: Counts,
}

impl Tap {
    pub(crate) async fn before(upstream: String) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, counts) = (listener.local_addr()?, Counts::default());
        let counting = counts.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, upstream.clone(), counting.clone()));
            }
        });
        Ok(Self { address, counts })
    }

    pub(crate) fn url(&self) -> String {
        format!("zookeeper://{}", self.address)
    }

    /// Forgets what was asked so far.
    pub(crate) fn clear(&self) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// How often it was asked to list children, in either way that there is.
    pub(crate) fn listings(&self) -> usize {
        self.count(8) + self.count(12)
    }

    pub(crate) fn deletes(&self) -> usize {
        self.count(2)
    }

    /// How often it was asked to catch up with the leader.
    pub(crate) fn syncs(&self) -> usize {
        self.count(9)
    }

    /// How often it was asked to write to a node, alone or among other things.
    pub(crate) fn writes(&self) -> usize {
        self.count(5) + self.count(14)
    }

    fn count(&self, code: i32) -> usize {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(&code).copied().unwrap_or_default()
    }
}

async fn relay(client: TcpStream, upstream: String, counts: Counts) -> io::Result<()> {
    let server = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, mut to_client) = client.into_split();
    let (mut from_server, to_server) = server.into_split();
    tokio::try_join!(
        tokio::io::copy(&mut from_server, &mut to_client),
        count(from_client, to_server, counts)
    )?;
    Ok(())
}

async fn count(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, counts: Counts) -> io::Result<()> {
    let mut greeted = false;
    loop {
        let length = from.read_u32().await?;
        let mut packet = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        from.read_exact(&mut packet).await?;
        let code = packet.get(4..).and_then(|rest| rest.first_chunk());
        // The greeting has no number.
        if let Some(code) = code.filter(|_| std::mem::replace(&mut greeted, true)) {
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            *counts.entry(i32::from_be_bytes(*code)).or_default() += 1;
        }
        to.write_all(&[&length.to_be_bytes(), packet.as_slice()].concat()).await?;
    }
}
