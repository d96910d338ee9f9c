//! Answers that are lost on the way, to those who reserve numbers and write records.
//!
//! The connection ends in place of the answer to the nth piece that a client sends, for every n: so
//! also in place of the answer to each write.

use anyhow::{Context as _, Result, ensure};
use lockkeeper::backend::{Backend, Reserve, Reserved, Sequencer};
use lockkeeper::{Error, ErrorKind, Name};
use lockkeeper_lab::proxy::{Proxy, Step};
use lockkeeper_lab::server::Server;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// More pieces than a few requests send.
const PIECES: i64 = 12;

/// A network that loses an answer on command.
struct Lossy {
    proxy: Proxy,
    /// How many pieces pass before the one whose answer is lost; below zero when none is to be.
    passing: Arc<AtomicI64>,
}

impl Lossy {
    async fn before(server: &Server) -> Result<Self> {
        let upstream = server.address().parse()?;
        let passing = Arc::new(AtomicI64::new(-1));
        let left = passing.clone();
        let readers = move || -> lockkeeper_lab::proxy::Reader {
            let left = left.clone();
            Box::new(move |_| match left.fetch_sub(1, Ordering::SeqCst) {
                0 => Step::EndInstead,
                _ => Step::Pass,
            })
        };
        // It has a runtime of its own.
        let started = tokio::task::spawn_blocking(move || Proxy::start_read(upstream, readers));
        Ok(Self { proxy: started.await??, passing })
    }

    /// The store behind it.
    async fn open(&self, server: &Server) -> Result<Arc<dyn Backend>> {
        let address = self.proxy.control().address().to_string();
        let url = server.url();
        ensure!(url.contains(&server.address()), "{url} has another address");
        Ok(lockkeeper::open(&url.replace(&server.address(), &address)).await?)
    }

    /// Loses the answer to the piece behind so many.
    fn lose_after(&self, passing: i64) {
        self.passing.store(passing, Ordering::SeqCst);
    }

    /// Whether it was lost; none is from here on.
    fn has_lost(&self) -> bool {
        self.passing.swap(-1, Ordering::SeqCst) < 0
    }
}

fn sequencer(backend: &dyn Backend) -> Result<&dyn Sequencer> {
    backend.sequencer().context("it has no sequencer")
}

fn is_outage(error: &Error) -> Result<()> {
    ensure!(error.kind() == ErrorKind::Unavailable, "a lost answer is {error:?}");
    Ok(())
}

/// No number is given twice, whatever is lost.
pub(super) async fn no_number_twice(server: &Server) -> Result<()> {
    let network = Lossy::before(server).await?;
    let (far, near) = (network.open(server).await?, lockkeeper::open(&server.url()).await?);
    let (far, near) = (sequencer(&*far)?, sequencer(&*near)?);
    let name = Name::new("numbers")?;
    let (mut seen, mut lost) = (BTreeSet::new(), 0);
    for wish in [Reserve::new(2), Reserve::new(2).up_to(1 << 40)] {
        for passing in 0..PIECES {
            network.lose_after(passing);
            for _ in 0..4 {
                match far.reserve(&name, &wish).await {
                    Ok(Reserved::From(first)) => {
                        let fresh = seen.insert(first) && seen.insert(first + 1);
                        ensure!(fresh, "{first} was given twice, behind {passing} pieces");
                    }
                    Ok(other) => anyhow::bail!("numbers are {other:?}"),
                    Err(error) => is_outage(&error)?,
                }
            }
            lost += u32::from(network.has_lost());
            let Reserved::From(next) = near.reserve(&name, &wish).await? else {
                anyhow::bail!("there are no numbers any more");
            };
            ensure!(seen.last().is_none_or(|last| *last < next), "{next} is below {seen:?}");
            seen.extend([next, next + 1]);
        }
    }
    ensure!(lost >= 4, "unknown: only {lost} answers were lost");
    Ok(())
}

/// A record whose answer was lost says what it said, or what was written; and nobody is told that it
/// was not written who wrote it.
pub(super) async fn no_write_repeated(server: &Server) -> Result<()> {
    let network = Lossy::before(server).await?;
    let (far, near) = (network.open(server).await?, lockkeeper::open(&server.url()).await?);
    let (far, near) = (sequencer(&*far)?, sequencer(&*near)?);
    let name = Name::new("record")?;
    let (mut says, mut lost) = (None, 0);
    for passing in 0..PIECES {
        network.lose_after(passing);
        for write in 0..4 {
            let value = format!("{write} behind {passing}");
            let written = far.write(&name, &value, says.as_deref()).await;
            let now = near.read(&name).await?;
            match written {
                Ok(true) => ensure!(now.as_ref() == Some(&value), "{value} is {now:?}"),
                // Nobody else writes.
                Ok(false) => anyhow::bail!("{value} instead of {says:?} was refused: {now:?}"),
                Err(error) => {
                    is_outage(&error)?;
                    ensure!(now == says || now.as_ref() == Some(&value), "it says {now:?}");
                }
            }
            says = now;
        }
        lost += u32::from(network.has_lost());
    }
    ensure!(lost >= 4, "unknown: only {lost} answers were lost");
    Ok(())
}
