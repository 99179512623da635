//! Accepts connections, determines the trust of each peer, and serves its requests.

pub(crate) mod sockets;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tower::Service as _;

use crate::auth::{Peer, Trust};
use crate::http::App;
use crate::listen::sockets::{Socket, SocketKind, remove_file};
use crate::load::{ConnectionLimits, LoadConfig, SpareDescriptor};

const RETRY: Duration = Duration::from_millis(50);

/// Refusals that are being sent. Further connections are closed without a response.
const MAX_REFUSALS: usize = 64;

const REFUSAL_TIMEOUT: Duration = Duration::from_millis(500);

/// Connections that have been accepted but not polled yet. Further ones wait in the kernel's backlog, so
/// that connection floods barely affect established clients.
const MAX_PENDING: usize = 4;

/// Released after the first poll of the connection.
type PendingPermit = OwnedSemaphorePermit;

/// More than the possible number of connections.
const MAX_SERVED: u32 = 1 << 24;

/// Time for the first request of a connection that was accepted before shutdown started: its client
/// expects a response.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_millis(500);

/// All served connections and their limits.
pub(crate) struct Connections {
    app: Arc<App>,
    router: Router,
    trust: Trust,
    limits: ConnectionLimits,
    spare_descriptor: SpareDescriptor,
    /// One permit per served connection, until it ends or is upgraded to a WebSocket.
    served: Arc<Semaphore>,
    /// One permit per refusal that is being sent.
    refusals: Semaphore,
    /// One permit per connection that has not been polled yet.
    pending: Arc<Semaphore>,
}

impl Connections {
    pub(crate) fn new(app: Arc<App>, router: Router, trust: Trust, load: &LoadConfig) -> Self {
        Self {
            limits: ConnectionLimits::new(&app.http, load, descriptors()),
            app,
            router,
            trust,
            spare_descriptor: SpareDescriptor::new(),
            served: Arc::new(Semaphore::new(MAX_SERVED as usize)),
            refusals: Semaphore::new(MAX_REFUSALS),
            pending: Arc::new(Semaphore::new(MAX_PENDING)),
        }
    }

    /// Never returns.
    pub(crate) async fn accept(self: &Arc<Self>, listeners: &[Listener]) {
        let kinds = listeners.iter().map(|listener| &listener.kind);
        join_all(kinds.map(|kind| self.accept_on(kind))).await;
    }

    async fn accept_on(self: &Arc<Self>, listener: &Kind) {
        loop {
            self.wait_for_pending().await;
            self.spare_descriptor.refill();
            match listener.accept().await {
                Ok(stream) => self.spawn(stream),
                Err(error) if SpareDescriptor::is_exhausted(&error) => {
                    // Closed right away: no descriptor is left for waiting until it is read.
                    let refuse = || match listener.accept().now_or_never() {
                        Some(Ok(stream)) => stream.try_write(TOO_MANY_CONNECTIONS).is_ok(),
                        Some(Err(_)) | None => false,
                    };
                    self.out_of_descriptors(&error, refuse).await;
                }
                Err(error) => pause(&error).await,
            }
        }
    }

    /// Waits until fewer connections are pending. Holds no permit, so that an idle listener does not keep
    /// the others from accepting.
    async fn wait_for_pending(&self) {
        drop(self.pending.acquire().await);
    }

    /// Takes the permit before the task first runs, so that shutdown waits for every accepted connection.
    fn spawn(self: &Arc<Self>, stream: Stream) {
        let Ok(served) = Arc::clone(&self.served).try_acquire_owned() else {
            return;
        };
        // `None` if another listener took the last permit. One more connection is harmless.
        let pending = Arc::clone(&self.pending).try_acquire_owned().ok();
        let connections = Arc::clone(self);
        tokio::spawn(async move {
            match stream {
                Stream::Tcp(stream) => serve_tcp(&connections, stream, pending).await,
                Stream::Unix(stream) => serve_unix(&connections, stream, pending).await,
            }
            drop(served);
        });
    }

    /// Resolves when every connection has ended, or after the timeout.
    pub(crate) async fn drained(&self, timeout: Duration) {
        // All permits are available once no connection holds one.
        let ended = self.served.acquire_many(MAX_SERVED);
        if tokio::time::timeout(timeout, ended).await.is_err() {
            tracing::warn!("requests are still running after {} s", timeout.as_secs());
        }
    }

    /// Refuses some of the waiting connections, then pauses so that others can end.
    async fn out_of_descriptors(&self, error: &io::Error, refuse: impl Fn() -> bool) {
        tracing::warn!(%error, "failed to accept connections: no file descriptors left; raise the limit of open files (RLIMIT_NOFILE)");
        for _ in 0..MAX_REFUSALS {
            if !self.spare_descriptor.with_released(&refuse) {
                break;
            }
            self.app.metrics.connection_refused();
        }
        tokio::time::sleep(RETRY).await;
    }

    /// Sends a 503 response, best effort. Reads what the peer has sent, because closing a socket with
    /// unread data discards the response.
    async fn refuse(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin, peer: Peer) {
        self.app.metrics.connection_refused();
        let Ok(_permit) = self.refusals.try_acquire() else {
            return;
        };
        let setting = if peer.trusted {
            "http.max_connections or load.connections_per_peer"
        } else {
            "http.max_untrusted_connections or load.untrusted_connections_per_peer"
        };
        tracing::warn!(?peer, setting, "connection refused: a limit is reached");
        let refusing = async {
            stream.write_all(TOO_MANY_CONNECTIONS).await?;
            stream.shutdown().await?;
            let mut buffer = [0; 4096];
            while stream.read(&mut buffer).await? > 0 {}
            io::Result::Ok(())
        };
        let _ = tokio::time::timeout(REFUSAL_TIMEOUT, refusing).await;
    }
}

fn descriptors() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let soft_limit = limit.current.unwrap_or(u64::MAX);
    usize::try_from(soft_limit).unwrap_or(usize::MAX)
}

/// Ignores peers that disconnect before they are accepted; logs other errors.
async fn pause(error: &io::Error) {
    if error.kind() != io::ErrorKind::ConnectionAborted {
        tracing::warn!(%error, "failed to accept a connection");
        tokio::time::sleep(RETRY).await;
    }
}

async fn serve_tcp(connections: &Connections, stream: TcpStream, pending: Option<PendingPermit>) {
    let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else {
        return;
    };
    // Responses are written whole, so Nagle's algorithm would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "failed to set TCP_NODELAY");
    }
    let peer = connections.trust.classify_tcp(peer, local);
    serve_peer(connections, stream, peer, pending).await;
}

async fn serve_unix(connections: &Connections, stream: UnixStream, pending: Option<PendingPermit>) {
    let uid = stream.peer_cred().ok().map(|credentials| credentials.uid());
    let peer = connections.trust.classify_unix(uid);
    serve_peer(connections, stream, peer, pending).await;
}

async fn serve_peer(
    connections: &Connections,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    peer: Peer,
    pending: Option<PendingPermit>,
) {
    let Some(permit) = connections.limits.try_acquire(&peer) else {
        drop(pending);
        return connections.refuse(stream, peer).await;
    };
    let permit = Arc::new(permit);
    connections.app.metrics.connection_opened();
    let router = connections.router.clone();
    let first_request = Arc::new(Notify::new());
    let notify_request = Arc::clone(&first_request);
    let service = service_fn(move |request: Request<Incoming>| {
        notify_request.notify_one();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        // A WebSocket keeps it beyond the end of this connection.
        request.extensions_mut().insert(Arc::clone(&permit));
        let mut router = router.clone();
        async move { router.call(request).await as Result<_, Infallible> }
    });
    let http = &connections.app.http;
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(http.header_timeout_sec))
        .max_headers(http.max_headers)
        .max_header_size(http.max_header_bytes);
    let connection = builder
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let mut stopping = connections.app.stopping.clone();
    let served = async {
        let first_poll = poll_fn(|context| Poll::Ready(connection.as_mut().poll(context))).await;
        drop(pending);
        if let Poll::Ready(ended) = first_poll {
            return ended;
        }
        // `biased`: received data is read before the connection is closed.
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
        // `Notify` keeps the notification, so this returns at once after the first request.
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            _ = tokio::time::timeout(FIRST_REQUEST_TIMEOUT, first_request.notified()) => {}
        }
        // Completes the current request, if any, then closes.
        connection.as_mut().graceful_shutdown();
        connection.await
    };
    if let Err(error) = served.await {
        tracing::debug!(%error, "connection failed");
    }
    connections.app.metrics.connection_closed();
}

const TOO_MANY_CONNECTIONS: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
content-type: application/json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 78\r\n\r\n\
{\"error\":{\"code\":\"capacity\",\"message\":\"the daemon has too many connections\"}}\n";

/// A listening socket. Removes the file of a Unix socket that this daemon created when dropped.
pub(crate) struct Listener {
    kind: Kind,
    own_file: Option<PathBuf>,
}

enum Kind {
    Tcp(TcpListener),
    Unix(UnixListener),
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Kind {
    async fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Self::Tcp(listener) => Stream::Tcp(listener.accept().await?.0),
            Self::Unix(listener) => Stream::Unix(listener.accept().await?.0),
        })
    }
}

impl Stream {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }
}

impl Listener {
    /// Needs a Tokio runtime.
    pub(crate) fn new(socket: Socket) -> io::Result<Self> {
        let own_file = socket.own_file().map(Path::to_owned);
        let kind = match socket.kind {
            SocketKind::Tcp(listener, _) => Kind::Tcp(TcpListener::from_std(listener)?),
            SocketKind::Unix(listener, _) => Kind::Unix(UnixListener::from_std(listener)?),
        };
        Ok(Self { kind, own_file })
    }

    /// Keeps the socket file: another daemon accepts on the socket from now on.
    pub(crate) fn detach(mut self) {
        self.own_file = None;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.own_file {
            remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_refusal_is_a_complete_response() {
        let text = std::str::from_utf8(TOO_MANY_CONNECTIONS).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        assert!(
            head.contains(&format!("content-length: {}", body.len())),
            "{}",
            body.len()
        );
        let body: boxwood_api::ErrorBody = serde_json::from_str(body).expect("JSON");
        assert_eq!(body.error.code, boxwood_api::ErrorCode::Capacity);
    }
}
