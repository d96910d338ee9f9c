//! One connection to one member: connecting, logging in, and the two kinds of calls.
//!
//! Nothing here retries, and only connecting and logging in have a time limit of their own: that
//! is for the [`Client`](super::Client), which knows the other members.

use super::super::error::Failure;
use super::super::protocol::{AuthenticateRequest, AuthenticateResponse, path};
use crate::backend::support::life::Life;
use crate::background::Background;
use futures_util::Stream;
use http::uri::PathAndQuery;
use prost::Message;
use std::time::Duration;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

/// The largest answer: a list of all locks can be long.
const LARGEST: usize = 256 << 20;
/// How long a login may take, at least. etcd makes the check of a password slow on purpose. A
/// client that gives up early has cost the server that check for nothing, so that where many log
/// in at once, as after a restart of everything, nobody would ever get in.
const LOGIN: Duration = Duration::from_secs(10);

/// A connection; clones share it.
#[derive(Clone)]
pub(super) struct Connection {
    channel: Channel,
    /// What proves that we logged in, where users are in use.
    pub(super) token: Option<MetadataValue<Ascii>>,
    /// The runtime that the connection's own task is on.
    pub(super) life: Life,
}

/// The answer, unless the connection's runtime ends or the time limit passes before.
///
/// A connection whose runtime ended neither sends nor refuses: its task is gone, and without this
/// a request on it would wait for the whole time limit.
pub(super) async fn within<A>(
    life: &Life,
    limit: Duration,
    asked: impl Future<Output = Result<A, Failure>>,
) -> Result<A, Failure> {
    match life.unless_ended(tokio::time::timeout(limit, asked)).await {
        Some(answer) => answer.unwrap_or(Err(Failure::TimedOut)),
        None => Err(Failure::RuntimeEnded),
    }
}

impl Connection {
    /// Connects, on the runtime where connections are best off. A member that does not answer in
    /// `limit` counts as one that timed out, so that the next is tried.
    pub(super) async fn open(
        member: &Endpoint,
        limit: Duration,
        background: &Background,
    ) -> Result<Self, Failure> {
        let connecting = background.settle(|| {
            let member = member.clone();
            async move { member.connect().await.map(|channel| (channel, Life::begin())) }
        });
        let connected = tokio::time::timeout(limit, connecting).await;
        let connected = connected.ok().and_then(Result::ok).ok_or(Failure::TimedOut)?;
        let (channel, life) = connected.map_err(Failure::Unreachable)?;
        Ok(Self { channel, token: None, life })
    }

    /// Logs in; the token to send with everything from then on. A request that is refused because
    /// the token ran out makes the client connect again, and so log in again.
    pub(super) async fn log_in(
        &self,
        name: &str,
        password: &str,
        limit: Duration,
    ) -> Result<Option<MetadataValue<Ascii>>, Failure> {
        let (name, password) = (name.to_owned(), password.to_owned());
        let request = AuthenticateRequest { name, password };
        let asked = self.clone().unary(path::AUTHENTICATE, request);
        let answer: AuthenticateResponse = within(&self.life, limit.max(LOGIN), asked).await?;
        Ok(answer.token.parse().ok())
    }

    /// Sends a request and waits for its one answer, without limit: see [`within`]. Dropping the
    /// future does not take the request back; it may be carried out all the same.
    pub(super) async fn unary<Q, A>(self, method: &'static str, request: Q) -> Result<A, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut client = Grpc::new(self.channel).max_decoding_message_size(LARGEST);
        client.ready().await.map_err(Failure::Unreachable)?;
        let request = with_token(Request::new(request), self.token);
        let codec = ProstCodec::<Q, A>::default();
        let answer = client.unary(request, PathAndQuery::from_static(method), codec).await;
        answer.map(tonic::Response::into_inner).map_err(Failure::Refused)
    }

    /// Opens streams in both directions.
    pub(super) async fn streaming<Q, A>(
        self,
        method: &'static str,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut client = Grpc::new(self.channel);
        client.ready().await.map_err(Failure::Unreachable)?;
        let request = with_token(Request::new(requests), self.token);
        let codec = ProstCodec::<Q, A>::default();
        let opened = client.streaming(request, PathAndQuery::from_static(method), codec).await;
        opened.map(tonic::Response::into_inner).map_err(Failure::Refused)
    }
}

/// Adds what proves that we logged in, where users are in use.
fn with_token<Q>(mut request: Request<Q>, token: Option<MetadataValue<Ascii>>) -> Request<Q> {
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
    request
}
