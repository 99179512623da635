//! Opens a byte stream to a daemon: TCP, a Unix socket, or TLS over TCP.
//!
//! HTTP and WebSocket both run on the resulting stream.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::endpoint::{Endpoint, Secure};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

pub(crate) type Stream = Box<dyn Duplex>;

pub(super) async fn connect(endpoint: &Endpoint) -> io::Result<Stream> {
    tokio::time::timeout(CONNECT_TIMEOUT, open(endpoint))
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no connection within 10 s"))?
}

async fn open(endpoint: &Endpoint) -> io::Result<Stream> {
    match endpoint {
        Endpoint::Tcp {
            host, port, secure, ..
        } => {
            let tcp = TcpStream::connect((host.as_str(), *port)).await?;
            // Requests are small and answered one by one; waiting to fill a packet only adds delay.
            tcp.set_nodelay(true)?;
            match secure {
                Secure::Plain => Ok(Box::new(tcp)),
                Secure::Tls => tls(host, tcp).await,
            }
        }
        Endpoint::Unix { path } => Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
    }
}

async fn tls(host: &str, tcp: TcpStream) -> io::Result<Stream> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let stream = tokio_rustls::TlsConnector::from(tls_config()?)
        .connect(name, tcp)
        .await?;
    Ok(Box::new(stream))
}

/// Reads the system's CA certificates on first use and keeps them for the life of the process:
/// parsing them takes longer than a TLS handshake. A failure is not kept, so that a retry can succeed.
fn tls_config() -> io::Result<Arc<ClientConfig>> {
    static CONFIG: std::sync::OnceLock<Arc<ClientConfig>> = std::sync::OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(Arc::clone(config));
    }
    // The system store includes private authorities that the operator has installed.
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or_else(
            || "no CA certificates are installed on this system".to_owned(),
            |error| format!("failed to read the CA certificates of this system: {error}"),
        );
        return Err(io::Error::other(why));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::clone(CONFIG.get_or_init(|| Arc::new(config))))
}

/// Opens streams for hyper. A client has one endpoint, so the URI is ignored.
#[derive(Clone)]
pub(super) struct Connector(pub(super) Arc<Endpoint>);

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Stream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let endpoint = Arc::clone(&self.0);
        Box::pin(async move { Ok(TokioIo::new(connect(&endpoint).await?)) })
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ca_certificates_are_loaded_once_per_process() {
        let first = tls_config().expect("needs CA certificates: install `ca-certificates`");
        let second = tls_config().expect("loaded before");
        assert!(Arc::ptr_eq(&first, &second));
    }
}
