//! Finds the daemon that a client verb connects to, from `--url`, the environment and the sockets that exist.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use boxwood_client::{Client, Endpoint, Token};
use boxwood_mcp::McpReach;

use crate::failure::{Failure, Outcome};

/// Name of the socket in a daemon's run directory.
const SOCKET: &str = "boxwood.sock";

/// `url` is the value of `--url` or `BOXWOOD_URL`.
pub(crate) fn client(url: Option<&str>) -> Outcome<Client> {
    let (endpoint, token) = endpoint(url)?;
    let client = Client::new(endpoint, token);
    // A variable and not a flag, because it gives access to the boxes of hosted MCP servers.
    let is_operator = std::env::var_os("BOXWOOD_OPERATOR").is_some_and(|value| value == "1");
    Ok(if is_operator {
        client.as_operator()
    } else {
        client
    })
}

/// The daemon's address, and the token to send.
pub(crate) fn endpoint(url: Option<&str>) -> Outcome<(Endpoint, Option<Token>)> {
    let endpoint = match url {
        Some(url) => url.parse()?,
        None => default_endpoint(),
    };
    let token = token_text().map(|text| Token::new(&text)).transpose()?;
    Ok((endpoint, token))
}

/// How an MCP client reaches `path` of the daemon over HTTP.
pub(crate) fn reach_by_http(
    url: Option<&str>,
    path: &str,
    headers: Vec<(String, String)>,
) -> Outcome<McpReach> {
    match url.map_or_else(|| Ok(Endpoint::local()), str::parse)? {
        endpoint @ Endpoint::Tcp { .. } => Ok(McpReach::Http {
            url: format!("{endpoint}{path}"),
            headers,
            with_token: token_text().is_some(),
        }),
        Endpoint::Unix { .. } => Err(Failure::usage(
            "MCP clients cannot connect to a Unix socket over HTTP",
        )
        .hint("set --url to the daemon's HTTP address, or omit --http")),
    }
}

/// How an MCP client starts this program.
pub(crate) fn reach_by_command(
    url: Option<&str>,
    args: impl IntoIterator<Item = String>,
) -> Outcome<McpReach> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::local("cannot find the path of this program", error))?;
    let mut args: Vec<String> = args.into_iter().collect();
    if let Some(url) = url {
        args.extend(["--url".to_owned(), url.to_owned()]);
    }
    Ok(McpReach::Command {
        program: program.display().to_string(),
        args,
    })
}

/// The first socket with a listener, the user's daemon before the system's; otherwise the default port.
fn default_endpoint() -> Endpoint {
    let user_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    user_dir
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join("boxwood"))
        .into_iter()
        .chain([PathBuf::from("/run/boxwood")])
        .map(|dir| dir.join(SOCKET))
        // A daemon that was killed leaves its socket file behind.
        .find(|path| UnixStream::connect(path).is_ok())
        .map_or_else(Endpoint::local, |path| Endpoint::Unix { path })
}

/// Not a flag: other users can read the arguments of a process.
fn token_text() -> Option<String> {
    let token = std::env::var("BOXWOOD_TOKEN").ok();
    token.filter(|token| !token.trim().is_empty())
}
