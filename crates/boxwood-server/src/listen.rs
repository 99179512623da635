//! Accepts connections, judges each peer once, and serves it.
//!
//! Comes in: listeners. Goes out: requests with their [`Peer`], to the router. Never here: routes.

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::Service as _;

use crate::auth::{Peer, Trust};
use crate::http::App;

/// Between two tries when the kernel has no descriptors left.
const RETRY: Duration = Duration::from_millis(50);

/// Served connections and how many there may be.
pub(crate) struct Connections {
    shared: Arc<Shared>,
}

struct Shared {
    app: Arc<App>,
    router: Router,
    trust: Trust,
    trusted: Arc<Semaphore>,
    /// Apart from the others, so that strangers cannot use up the daemon's connections.
    untrusted: Arc<Semaphore>,
}

impl Connections {
    pub(crate) fn new(app: Arc<App>, router: Router, trust: Trust) -> Self {
        let trusted = Arc::new(Semaphore::new(app.http.max_connections));
        let untrusted = Arc::new(Semaphore::new(app.http.max_untrusted_connections));
        Self {
            shared: Arc::new(Shared {
                app,
                router,
                trust,
                trusted,
                untrusted,
            }),
        }
    }

    /// Accepts for ever.
    pub(crate) async fn accept(&self, tcp: TcpListener, unix: Option<UnixSocket>) {
        let over_unix = async {
            match &unix {
                Some(socket) => self.accept_unix(&socket.listener).await,
                None => std::future::pending().await,
            }
        };
        tokio::join!(self.accept_tcp(tcp), over_unix);
    }

    async fn accept_tcp(&self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    tokio::spawn(serve_tcp(Arc::clone(&self.shared), stream));
                }
                Err(error) => pause(&error).await,
            }
        }
    }

    async fn accept_unix(&self, listener: &UnixListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    tokio::spawn(serve_unix(Arc::clone(&self.shared), stream));
                }
                Err(error) => pause(&error).await,
            }
        }
    }

    /// Resolves when every connection has ended, or the time is over.
    pub(crate) async fn drained(&self, longest: Duration) {
        let http = &self.shared.app.http;
        let all = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
        let ended = async {
            // Holding every permit means that nobody else holds one.
            let trusted = self
                .shared
                .trusted
                .acquire_many(all(http.max_connections))
                .await;
            let untrusted = self
                .shared
                .untrusted
                .acquire_many(all(http.max_untrusted_connections))
                .await;
            drop((trusted, untrusted));
        };
        if tokio::time::timeout(longest, ended).await.is_err() {
            tracing::warn!("requests still run after {} s", longest.as_secs());
        }
    }
}

/// A peer that hangs up before it is accepted is no news; running out of descriptors is.
async fn pause(error: &io::Error) {
    if error.kind() != io::ErrorKind::ConnectionAborted {
        tracing::warn!(%error, "a connection could not be accepted");
        tokio::time::sleep(RETRY).await;
    }
}

async fn serve_tcp(shared: Arc<Shared>, stream: TcpStream) {
    let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else {
        return;
    };
    // Answers are written whole; waiting to fill a packet would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let peer = shared.trust.judge_tcp(peer, local);
    serve_peer(&shared, stream, peer).await;
}

async fn serve_unix(shared: Arc<Shared>, stream: UnixStream) {
    let uid = stream.peer_cred().ok().map(|credentials| credentials.uid());
    let peer = shared.trust.judge_unix(uid);
    serve_peer(&shared, stream, peer).await;
}

async fn serve_peer(
    shared: &Shared,
    mut stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    peer: Peer,
) {
    let Some(_seat) = seat(shared, peer) else {
        shared.app.metrics.connection_refused();
        tracing::warn!(?peer, "a connection over the limit was refused");
        // A courtesy; whether it arrives changes nothing.
        let _ = stream.write_all(FULL).await;
        return;
    };
    shared.app.metrics.connection_opened();
    let router = shared.router.clone();
    let service = service_fn(move |request: Request<Incoming>| {
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
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        _ = stopping.wait_for(|stopping| *stopping) => None,
    };
    let ended = if let Some(ended) = ended {
        ended
    } else {
        // Finishes the request it is at, if any, and then closes.
        connection.as_mut().graceful_shutdown();
        connection.await
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
    shared.app.metrics.connection_closed();
}

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
content-type: application/json\r\nconnection: close\r\ncontent-length: 78\r\n\r\n\
{\"error\":{\"code\":\"capacity\",\"message\":\"the daemon has too many connections\"}}\n";

fn seat(shared: &Shared, peer: Peer) -> Option<OwnedSemaphorePermit> {
    let seats = if peer.trusted {
        &shared.trusted
    } else {
        &shared.untrusted
    };
    Arc::clone(seats).try_acquire_owned().ok()
}

/// A listening Unix socket whose file goes with it.
pub(crate) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl UnixSocket {
    /// Replaces a socket that a dead daemon left, and refuses to take over a living one's.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        // Too long for any socket; found out first, so that nothing is removed for nothing.
        std::os::unix::net::SocketAddr::from_pathname(path)?;
        if let Ok(metadata) = std::fs::symlink_metadata(path) {
            if !metadata.file_type().is_socket() {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "something that is not a socket is in its place",
                ));
            }
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    "another daemon listens on it",
                ));
            }
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        // The directory is private already; this is for operators who open it up.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self {
            listener,
            path: path.to_owned(),
        })
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, path = %self.path.display(), "the socket could not be removed");
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

    #[tokio::test]
    async fn a_dead_daemons_socket_is_replaced_and_a_living_ones_is_not() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("boxwood.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("bind"));
        let living = UnixSocket::bind(&path).expect("replaces");
        let refused = UnixSocket::bind(&path).err().map(|error| error.kind());
        assert_eq!(refused, Some(io::ErrorKind::AddrInUse));
        drop(living);
        assert!(!path.exists());
        std::fs::write(&path, "precious").expect("write");
        assert!(UnixSocket::bind(&path).is_err());
        assert!(path.exists());
    }
}
