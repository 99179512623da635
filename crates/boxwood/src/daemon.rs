//! Finds the daemon that a client verb connects to, from `--url`, the environment and the sockets that exist.

use std::path::{Path, PathBuf};

use boxwood_client::{Client, Endpoint, Token};

use crate::failure::{Failure, Outcome};

/// The socket's name in a daemon's run directory.
const SOCKET: &str = "boxwood.sock";

/// `url` is what the person said, by flag or variable.
pub(crate) fn client(url: Option<&str>) -> Outcome<Client> {
    let (endpoint, token) = place(url)?;
    let client = Client::new(endpoint, token);
    Ok(if is_operator() {
        client.as_operator()
    } else {
        client
    })
}

/// Said for one command, and on purpose: it leads into the boxes of hosted MCP servers.
fn is_operator() -> bool {
    std::env::var_os("BOXWOOD_OPERATOR").is_some_and(|said| said == "1")
}

/// Where the daemon is, and what opens its door.
pub(crate) fn place(url: Option<&str>) -> Outcome<(Endpoint, Option<Token>)> {
    let endpoint = match url {
        Some(url) => url.parse()?,
        None => usual_endpoint(),
    };
    let token = token_text().map(|text| Token::new(&text)).transpose()?;
    Ok((endpoint, token))
}

pub(crate) fn has_token() -> bool {
    token_text().is_some()
}

/// Where programs that only speak HTTP find it.
pub(crate) fn http_address(url: Option<&str>) -> Outcome<String> {
    match url.map_or_else(|| Ok(Endpoint::local()), str::parse)? {
        endpoint @ Endpoint::Tcp { .. } => Ok(endpoint.to_string()),
        Endpoint::Unix { .. } => Err(Failure::usage(
            "MCP clients cannot ask a Unix socket over HTTP",
        )
        .hint("name the daemon's port with --url, or leave --http out")),
    }
}

/// For configurations that start it.
pub(crate) fn this_program() -> Outcome<String> {
    std::env::current_exe()
        .map(|program| program.display().to_string())
        .map_err(|error| Failure::local("this program's own path is not known", error))
}

/// The first socket with a listener, the user's daemon before the system's; otherwise the default port.
fn usual_endpoint() -> Endpoint {
    run_dirs()
        .into_iter()
        .map(|dir| dir.join(SOCKET))
        .find(|path| is_served(path))
        .map_or_else(Endpoint::local, |path| Endpoint::Unix { path })
}

fn run_dirs() -> Vec<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join("boxwood"))
        .into_iter()
        .chain([PathBuf::from("/run/boxwood")])
        .collect()
}

/// A secret, so it has no flag: arguments can be read by every user of the machine.
fn token_text() -> Option<String> {
    std::env::var("BOXWOOD_TOKEN")
        .ok()
        .filter(|token| !token.trim().is_empty())
}

/// Tried by connecting: a daemon that was killed leaves its socket file behind.
#[cfg(unix)]
fn is_served(path: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(path).is_ok()
}

#[cfg(not(unix))]
fn is_served(_path: &Path) -> bool {
    false
}
