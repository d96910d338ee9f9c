//! Getting in: credentials and TLS.

use crate::{LONG, cases, keeper};
use anyhow::{Context, Result, ensure};
use lockkeeper::ErrorKind;
use lockkeeper_lab::server::{Lab, Server};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

cases![
    locks_made_with_credentials_are_closed_to_others,
    a_server_behind_tls_is_reached,
    a_server_that_cannot_prove_itself_is_refused,
    nobody_there_is_said_so,
];

async fn locks_made_with_credentials_are_closed_to_others(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let address = server.address();
    let with = |who: &str| format!("zookeeper://{who}@{address}/closed");
    let one = keeper(&with("me:secret"), "session=10s").await?;
    let guard = one.lock("n").ttl(LONG).acquire().await?;
    let same = keeper(&with("me:secret"), "session=10s").await?;
    ensure!(same.lock("n").try_acquire().await?.is_none(), "it is not held");
    for (url, options) in [
        (format!("zookeeper://{address}/closed"), "session=10s"),
        (with("me:wrong"), "session=10s"),
    ] {
        let other = keeper(&url, options).await?;
        for outcome in [
            other.lock("n").try_acquire().await.map(drop),
            other.lock("n").acquire().await.map(drop),
            other.lock("another").acquire().await.map(drop),
        ] {
            let error = outcome.err().context("a stranger was let in")?;
            ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
            ensure!(!format!("{error:?}").contains("wrong"), "it tells the password");
        }
    }
    guard.release().await?;
    Ok(())
}

/// A certificate and its key, made for this machine.
fn certificate(server: &Server) -> Result<(PathBuf, PathBuf)> {
    let (cert, key) = (server.folder().join("cert.pem"), server.folder().join("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=lab", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout".as_ref(), key.as_os_str(), "-out".as_ref(), cert.as_os_str()])
        .output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Ok((cert, key))
}

/// TLS in front of the server, which by itself has none.
async fn wrapped(server: &Server) -> Result<(SocketAddr, PathBuf)> {
    let (cert, key) = certificate(server)?;
    let chain = vec![CertificateDer::from_pem_file(&cert)?];
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let settings = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    let acceptor = TlsAcceptor::from(Arc::new(settings));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (address, upstream) = (listener.local_addr()?, server.address());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, upstream) = (acceptor.clone(), upstream.clone());
            tokio::spawn(async move {
                let mut inside = TcpStream::connect(upstream).await?;
                let mut outside = acceptor.accept(stream).await?;
                tokio::io::copy_bidirectional(&mut outside, &mut inside).await
            });
        }
    });
    Ok((address, cert))
}

async fn a_server_behind_tls_is_reached(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let (address, cert) = wrapped(&server).await?;
    let options = format!("session=10s&tls=true&ca={}", cert.display());
    let one = keeper(&format!("zookeeper://{address}"), &options).await?;
    let two = keeper(&server.url(), "session=10s").await?;
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

async fn a_server_that_cannot_prove_itself_is_refused(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let (address, _) = wrapped(&server).await?;
    let other = lab.zookeeper().start()?;
    let (stranger, _) = certificate(&other)?;
    let options = format!("session=10s&tls=true&ca={}", stranger.display());
    let error = keeper(&format!("zookeeper://{address}"), &options).await.err();
    let error = error.context("it was believed")?;
    ensure!(format!("{error:#}").contains("certificate"), "{error:#}");
    Ok(())
}

async fn nobody_there_is_said_so(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let url = server.url();
    server.kill()?;
    let outcome = lockkeeper::connect(&format!("{url}?connect_timeout=500ms")).await;
    let error = outcome.err().context("someone answered")?;
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    Ok(())
}
