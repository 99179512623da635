//! Reports the daemon's state to the service manager with `sd_notify`. Failures are only logged.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

#[derive(Debug, Default)]
pub(crate) struct Notify {
    manager: Option<(UnixDatagram, SocketAddr)>,
}

impl Notify {
    /// `address` is the value of `NOTIFY_SOCKET`: a path, or `@` and an abstract name.
    pub(crate) fn new(address: Option<&str>) -> Self {
        let Some(address) = address else {
            return Self::default();
        };
        match connect(address) {
            Ok(manager) => Self {
                manager: Some(manager),
            },
            Err(error) => {
                tracing::warn!(%error, address, "failed to connect to the notification socket of the service manager");
                Self::default()
            }
        }
    }

    pub(crate) fn ready(&self, status: &str) {
        let pid = std::process::id();
        // After a takeover, this process is not the one that the service manager started.
        self.send(&format!("READY=1\nMAINPID={pid}\nSTATUS={}", line(status)));
    }

    pub(crate) fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", line(status)));
    }

    pub(crate) fn stopping(&self, status: &str) {
        self.send(&format!("STOPPING=1\nSTATUS={}", line(status)));
    }

    /// Sent by the previous daemon, because the manager accepts it only from the known main
    /// process.
    pub(crate) fn followed_by(&self, pid: u32) {
        self.send(&format!("MAINPID={pid}\nSTATUS=handing over to pid {pid}"));
    }

    fn send(&self, message: &str) {
        let Some((socket, address)) = &self.manager else {
            return;
        };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            tracing::debug!(%error, "failed to notify the service manager");
        }
    }
}

/// A newline would start another assignment.
fn line(text: &str) -> String {
    text.replace('\n', " ")
}

fn connect(address: &str) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match address.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None if address.starts_with('/') => SocketAddr::from_pathname(address)?,
        None => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "NOTIFY_SOCKET is neither a path nor an abstract name",
            ));
        }
    };
    let socket = UnixDatagram::unbound()?;
    // Non-blocking, so that a hanging manager does not block the daemon.
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 512];
        let count = socket.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }

    #[test]
    fn the_service_manager_receives_every_state() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("bind");
        let notify = Notify::new(path.to_str());
        notify.ready("one\ntwo");
        let pid = std::process::id();
        assert_eq!(
            receive(&manager),
            format!("READY=1\nMAINPID={pid}\nSTATUS=one two")
        );
        notify.followed_by(7);
        assert!(receive(&manager).starts_with("MAINPID=7\n"));
        notify.stopping("soon");
        assert_eq!(receive(&manager), "STOPPING=1\nSTATUS=soon");
        drop(manager);
        notify.status("no receiver");
    }

    #[test]
    fn the_notification_socket_may_have_an_abstract_name() {
        let name = format!("boxwood-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let manager = UnixDatagram::bind_addr(&address).expect("bind");
        Notify::new(Some(&format!("@{name}"))).status("here");
        assert_eq!(receive(&manager), "STATUS=here");
    }
}
