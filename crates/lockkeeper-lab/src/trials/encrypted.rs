//! What every store must do when its server uses TLS.

use crate::server::{Certificates, Server};
use anyhow::{Context, Result, ensure};
use lockkeeper::{ErrorKind, Keeper};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);

/// The server's URL with these options added.
fn with(server: &Server, options: &str) -> String {
    let url = server.url();
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}{options}")
}

/// A keeper that trusts the server's authority, with the options in `more`.
async fn trusting(server: &Server, more: &str) -> lockkeeper::Result<Keeper> {
    let Certificates { authority, .. } = Certificates::in_folder(server.folder());
    let url = with(server, &format!("ca={}{more}", authority.display()));
    lockkeeper::connect(&url).await
}

/// Locks are taken and handed over on a server that uses TLS.
///
/// # Errors
/// When they are not.
pub async fn is_reached(server: &Server) -> Result<()> {
    let (one, two) = (trusting(server, "").await?, trusting(server, "").await?);
    for _ in 0..20 {
        let guard = one.lock("n").ttl(LONG).acquire().await?;
        ensure!(two.lock("n").try_acquire().await?.is_none(), "it is not held");
        let lock = two.lock("n").ttl(LONG);
        let waiter = tokio::spawn(async move { lock.acquire_within(LONG).await });
        guard.release().await?;
        waiter.await??.release().await?;
    }
    Ok(())
}

/// A client that trusts only the authority of `other` refuses the server, and its error says what
/// to do.
///
/// # Errors
/// When it does.
pub async fn is_refused_by_who_trusts(other: &Server, server: &Server) -> Result<()> {
    let stranger = Certificates::in_folder(other.folder()).authority;
    let error = lockkeeper::connect(&with(server, &format!("ca={}", stranger.display()))).await;
    let error = error.err().context("it was believed")?;
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    ensure!(error.to_string().contains("ca=FILE"), "{error}");
    Ok(())
}

/// The server accepts a client with the certificate it asks for. It refuses a client without one,
/// or with one made for `other`; the error is one of `kinds` and says what to do.
///
/// # Errors
/// When the server refuses the first, or accepts one of the others.
pub async fn asks_for_a_certificate(
    server: &Server,
    other: &Server,
    kinds: &[ErrorKind],
) -> Result<()> {
    let shown = |server: &Server| {
        let Certificates { client, client_key, .. } = Certificates::in_folder(server.folder());
        format!("&cert={}&key={}", client.display(), client_key.display())
    };
    let keeper = trusting(server, &shown(server)).await?;
    keeper.lock("n").ttl(LONG).acquire().await?.release().await?;
    for (what, more) in [("none", String::new()), ("a stranger's", shown(other))] {
        let error = trusting(server, &more).await.err().context("let in")?;
        ensure!(kinds.contains(&error.kind()), "{what}: {error:?}");
        ensure!(error.to_string().contains("cert=FILE"), "{what}: {error}");
    }
    Ok(())
}
