//! Accepts connections, judges each peer once, and serves it.
//!
//! Comes in: listeners. Goes out: requests with their [`Peer`], to the router. Never here: routes.

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
use crate::load::{Doors, LoadConfig, Reserve, Seated};
use crate::sockets::{Socket, SocketKind, remove_file};

/// Between two tries when the kernel has no descriptors left.
const RETRY: Duration = Duration::from_millis(50);

/// Refusals told at the same time. Whoever comes beyond that finds the connection closed.
const REFUSALS: usize = 64;

/// For a refused peer to take its answer.
const FAREWELL: Duration = Duration::from_millis(500);

/// Connections between being accepted and their first look at what was sent. Whoever comes beyond that
/// waits in the kernel: a crowd at the door must not stand in line before those who are inside.
const GREETED: usize = 4;

/// Given back when the connection has been looked at.
type Greeting = OwnedSemaphorePermit;

/// More connections than there can be.
const MOST: u32 = 1 << 24;

/// For the first request of a connection that was accepted before the daemon was told to stop. Its
/// client believes that it reached somebody.
const FIRST_REQUEST: Duration = Duration::from_millis(500);

/// Served connections and how many there may be.
pub(crate) struct Connections {
    shared: Arc<Shared>,
}

struct Shared {
    app: Arc<App>,
    router: Router,
    trust: Trust,
    doors: Doors,
    reserve: Reserve,
    /// One permit for each connection that is served, until it ends or becomes a WebSocket.
    served: Arc<Semaphore>,
    /// One for each refusal that is being told.
    refusals: Semaphore,
    /// One for each connection that was accepted a moment ago.
    greeted: Arc<Semaphore>,
}

impl Connections {
    pub(crate) fn new(app: Arc<App>, router: Router, trust: Trust, load: &LoadConfig) -> Self {
        Self {
            shared: Arc::new(Shared {
                doors: Doors::new(&app.http, load, descriptors()),
                app,
                router,
                trust,
                reserve: Reserve::new(),
                served: Arc::new(Semaphore::new(MOST as usize)),
                refusals: Semaphore::new(REFUSALS),
                greeted: Arc::new(Semaphore::new(GREETED)),
            }),
        }
    }

    /// Accepts for ever.
    pub(crate) async fn accept(&self, listeners: &[Listener]) {
        let accepting = listeners.iter().map(async |listener| match &listener.kind {
            Kind::Tcp(listener) => self.accept_tcp(listener).await,
            Kind::Unix(listener) => self.accept_unix(listener).await,
        });
        join_all(accepting).await;
    }

    async fn accept_tcp(&self, listener: &TcpListener) {
        loop {
            self.greetings_end().await;
            self.shared.reserve.refill();
            match listener.accept().await {
                Ok((stream, _)) => {
                    self.spawn(|shared, greeting| serve_tcp(shared, stream, greeting));
                }
                Err(error) if Reserve::is_for(&error) => {
                    // Dropped with what it was sent: there is no descriptor to wait with.
                    let turn_away = || match listener.accept().now_or_never() {
                        Some(Ok((stream, _))) => stream.try_write(FULL).is_ok(),
                        Some(Err(_)) | None => false,
                    };
                    self.shared.out_of_descriptors(&error, turn_away).await;
                }
                Err(error) => pause(&error).await,
            }
        }
    }

    async fn accept_unix(&self, listener: &UnixListener) {
        loop {
            self.greetings_end().await;
            self.shared.reserve.refill();
            match listener.accept().await {
                Ok((stream, _)) => {
                    self.spawn(|shared, greeting| serve_unix(shared, stream, greeting));
                }
                Err(error) if Reserve::is_for(&error) => {
                    let turn_away = || match listener.accept().now_or_never() {
                        Some(Ok((stream, _))) => stream.try_write(FULL).is_ok(),
                        Some(Err(_)) | None => false,
                    };
                    self.shared.out_of_descriptors(&error, turn_away).await;
                }
                Err(error) => pause(&error).await,
            }
        }
    }

    /// Waits until few enough are being greeted. Holds nothing: listeners that wait for somebody must not
    /// keep the others from accepting, however many there are.
    async fn greetings_end(&self) {
        drop(self.shared.greeted.acquire().await);
    }

    /// Counted from this moment on: whoever was accepted is waited for, also before its task first
    /// runs.
    fn spawn<F>(&self, serve: impl FnOnce(Arc<Shared>, Option<Greeting>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Ok(served) = Arc::clone(&self.shared.served).try_acquire_owned() else {
            return;
        };
        // None where another listener was quicker; one more does not matter.
        let greeting = Arc::clone(&self.shared.greeted).try_acquire_owned().ok();
        let serving = serve(Arc::clone(&self.shared), greeting);
        tokio::spawn(async move {
            serving.await;
            drop(served);
        });
    }

    /// Resolves when every connection has ended, or the time is over.
    pub(crate) async fn drained(&self, longest: Duration) {
        // Holding every permit means that nobody else holds one.
        let ended = self.shared.served.acquire_many(MOST);
        if tokio::time::timeout(longest, ended).await.is_err() {
            tracing::warn!("requests still run after {} s", longest.as_secs());
        }
    }
}

impl Shared {
    /// Tells some of those who wait that they wait for nothing, and gives the others time to end.
    async fn out_of_descriptors(&self, error: &io::Error, turn_away: impl Fn() -> bool) {
        tracing::warn!(%error, "there are no descriptors left for connections");
        for _ in 0..REFUSALS {
            if !self.reserve.lend(&turn_away) {
                break;
            }
            self.app.metrics.connection_refused();
        }
        tokio::time::sleep(RETRY).await;
    }

    /// A courtesy; whether it arrives changes nothing. What the peer has sent is read first, because
    /// a socket closed over unread bytes takes the answer down with it.
    async fn refuse(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin, peer: Peer) {
        self.app.metrics.connection_refused();
        let Ok(_telling) = self.refusals.try_acquire() else {
            return;
        };
        tracing::warn!(?peer, "a connection over the limit was refused");
        let telling = async {
            stream.write_all(FULL).await?;
            stream.shutdown().await?;
            let mut nowhere = [0; 4096];
            while stream.read(&mut nowhere).await? > 0 {}
            io::Result::Ok(())
        };
        let _ = tokio::time::timeout(FAREWELL, telling).await;
    }
}

fn descriptors() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = limit.current.unwrap_or(u64::MAX);
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// A peer that hangs up before it is accepted is no news; anything else is.
async fn pause(error: &io::Error) {
    if error.kind() != io::ErrorKind::ConnectionAborted {
        tracing::warn!(%error, "a connection could not be accepted");
        tokio::time::sleep(RETRY).await;
    }
}

async fn serve_tcp(shared: Arc<Shared>, stream: TcpStream, greeting: Option<Greeting>) {
    let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else {
        return;
    };
    // Answers are written whole; waiting to fill a packet would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let peer = shared.trust.judge_tcp(peer, local);
    serve_peer(&shared, stream, peer, greeting).await;
}

async fn serve_unix(shared: Arc<Shared>, stream: UnixStream, greeting: Option<Greeting>) {
    let uid = stream.peer_cred().ok().map(|credentials| credentials.uid());
    let peer = shared.trust.judge_unix(uid);
    serve_peer(&shared, stream, peer, greeting).await;
}

async fn serve_peer(
    shared: &Shared,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    peer: Peer,
    greeting: Option<Greeting>,
) {
    let Some(entered) = shared.doors.enter(&peer) else {
        drop(greeting);
        return shared.refuse(stream, peer).await;
    };
    let stream = Seated::new(stream, entered);
    shared.app.metrics.connection_opened();
    let router = shared.router.clone();
    let begun = Arc::new(Notify::new());
    let begins = Arc::clone(&begun);
    let service = service_fn(move |request: Request<Incoming>| {
        begins.notify_one();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        let mut router = router.clone();
        async move { router.call(request).await as Result<_, Infallible> }
    });
    let http = &shared.app.http;
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
    let mut stopping = shared.app.stopping.clone();
    let served = async {
        let first_look = poll_fn(|context| Poll::Ready(connection.as_mut().poll(context))).await;
        drop(greeting);
        if let Poll::Ready(ended) = first_look {
            return ended;
        }
        // In this order: what has arrived is read before anything is closed.
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
        // Remembered from the first request on, so that there is nothing to wait for after it.
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            _ = tokio::time::timeout(FIRST_REQUEST, begun.notified()) => {}
        }
        // Finishes the request it is at, if any, and then closes.
        connection.as_mut().graceful_shutdown();
        connection.await
    };
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection broke");
    }
    shared.app.metrics.connection_closed();
}

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
content-type: application/json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 78\r\n\r\n\
{\"error\":{\"code\":\"capacity\",\"message\":\"the daemon has too many connections\"}}\n";

/// A socket that is accepted on. The file of a Unix socket that this daemon made goes with it.
pub(crate) struct Listener {
    kind: Kind,
    own_file: Option<PathBuf>,
}

enum Kind {
    Tcp(TcpListener),
    Unix(UnixListener),
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

    /// Somebody else accepts on it from now on.
    pub(crate) fn hand_on(mut self) {
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
    fn the_refusal_of_a_connection_is_a_whole_answer() {
        let text = std::str::from_utf8(FULL).expect("text");
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
