//! Forwards a TCP port of loopback to the engine's socket, to simulate a remote engine.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::Context as _;

/// An address that forwards to `socket` for the lifetime of this process.
pub(super) fn forward_to(socket: &str) -> anyhow::Result<String> {
    static ADDRESS: OnceLock<String> = OnceLock::new();
    if let Some(address) = ADDRESS.get() {
        return Ok(address.clone());
    }
    let path = socket
        .strip_prefix("unix://")
        .context("the engine's address is not a socket")?;
    let path = PathBuf::from(path);
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = format!("tcp://{}", listener.local_addr()?);
    std::thread::spawn(move || {
        for caller in listener.incoming().flatten() {
            if let Ok(engine) = UnixStream::connect(&path) {
                let _ = join(caller, engine);
            }
        }
    });
    Ok(ADDRESS.get_or_init(|| address).clone())
}

/// Copies both directions independently: the engine's clients close one and read the other.
fn join(caller: TcpStream, engine: UnixStream) -> io::Result<()> {
    let (mut from_caller, mut to_engine) = (caller.try_clone()?, engine.try_clone()?);
    std::thread::spawn(move || {
        let _ = io::copy(&mut from_caller, &mut to_engine);
        let _ = to_engine.shutdown(Shutdown::Write);
    });
    let (mut from_engine, mut to_caller) = (engine, caller);
    std::thread::spawn(move || {
        let _ = io::copy(&mut from_engine, &mut to_caller);
        let _ = to_caller.shutdown(Shutdown::Write);
    });
    Ok(())
}
