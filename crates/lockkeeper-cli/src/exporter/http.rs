//! The page, for those who ask for it.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

type Told = watch::Receiver<Option<Arc<str>>>;

/// So many are answered at once; others wait to be let in.
const CONNECTIONS: usize = 64;
/// How long one may take to ask, and to read the answer.
const LIMIT: Duration = Duration::from_secs(30);
/// How long one waits for the first look.
const FIRST_LOOK: Duration = Duration::from_secs(5);
/// After a connection could not be taken, for want of files.
const PAUSE: Duration = Duration::from_millis(100);

const PLAIN: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) async fn serve(listener: TcpListener, told: Told) -> Infallible {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = room.clone().acquire_owned().await else {
            unreachable!("nobody closes it");
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let told = told.clone();
                tokio::spawn(async move {
                    // Whoever is slow, or speaks something else, gets nothing.
                    let _ = tokio::time::timeout(LIMIT, answer(stream, told)).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn answer(stream: TcpStream, told: Told) -> hyper::Result<()> {
    let service = service_fn(move |request| {
        let told = told.clone();
        async move { Ok::<_, Infallible>(page(&request, told).await) }
    });
    // One request for each connection: none is there to be kept open.
    http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(LIMIT)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

async fn page(request: &Request<Incoming>, told: Told) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET and HEAD\n");
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    match request.uri().path() {
        "/metrics" => metrics(told).await,
        "/" => text(StatusCode::OK, PLAIN, "lockkeeper exporter: see /metrics\n"),
        _ => text(StatusCode::NOT_FOUND, PLAIN, "there is /metrics alone\n"),
    }
}

async fn metrics(mut told: Told) -> Response<Full<Bytes>> {
    let first = tokio::time::timeout(FIRST_LOOK, told.wait_for(Option::is_some)).await;
    match first {
        Ok(Ok(page)) => text(StatusCode::OK, METRICS, page.as_deref().unwrap_or_default()),
        _ => text(StatusCode::SERVICE_UNAVAILABLE, PLAIN, "no look was taken yet\n"),
    }
}

fn text(status: StatusCode, kind: &'static str, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(text.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
