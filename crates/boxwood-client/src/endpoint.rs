//! Addresses of daemons, such as `http://host:port` or `unix:///run/boxwood/boxwood.sock`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::{ClientError, Result};

/// The default port of a daemon.
pub const DEFAULT_PORT: u16 = 5410;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Tcp {
        /// Without brackets, also for IPv6.
        host: String,
        port: u16,
        secure: Secure,
        /// Prefix of all paths, for daemons behind a proxy. Empty or `/like/this`.
        prefix: String,
    },
    Unix {
        path: PathBuf,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secure {
    Plain,
    Tls,
}

impl Endpoint {
    /// The default address of `boxwood serve`.
    pub fn local() -> Self {
        Self::Tcp {
            host: "127.0.0.1".to_owned(),
            port: DEFAULT_PORT,
            secure: Secure::Plain,
            prefix: String::new(),
        }
    }

    /// The value of the `Host` header; `localhost` for Unix sockets.
    pub(crate) fn authority(&self) -> String {
        match self {
            Self::Tcp { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
            Self::Tcp { host, port, .. } => format!("{host}:{port}"),
            Self::Unix { .. } => "localhost".to_owned(),
        }
    }

    pub(crate) fn prefix(&self) -> &str {
        match self {
            Self::Tcp { prefix, .. } => prefix,
            Self::Unix { .. } => "",
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { secure, prefix, .. } => {
                let scheme = match secure {
                    Secure::Plain => "http",
                    Secure::Tls => "https",
                };
                write!(f, "{scheme}://{}{prefix}", self.authority())
            }
            Self::Unix { path } => write!(f, "unix://{}", path.display()),
        }
    }
}

impl FromStr for Endpoint {
    type Err = ClientError;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |why: &'static str| ClientError::BadUrl {
            url: text.to_owned(),
            why,
        };
        let trimmed = text.trim();
        let path = trimmed.strip_prefix("unix://").unwrap_or(trimmed);
        if path.starts_with('/') {
            return Ok(Self::Unix { path: path.into() });
        }
        let (secure, rest) = match trimmed.split_once("://") {
            None => (Secure::Plain, trimmed),
            Some(("http", rest)) => (Secure::Plain, rest),
            Some(("https", rest)) => (Secure::Tls, rest),
            Some(("unix", _)) => {
                return Err(bad(
                    "a unix socket needs an absolute path, as in `unix:///run/boxwood/boxwood.sock`",
                ));
            }
            Some(_) => return Err(bad("the scheme must be `http`, `https` or `unix`")),
        };
        let (authority, prefix) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if prefix.contains(['?', '#']) || authority.contains(['?', '#']) {
            return Err(bad("an address has no query or fragment"));
        }
        if authority.contains('@') {
            return Err(bad(
                "put the token into `BOXWOOD_TOKEN`, not into the address",
            ));
        }
        let (host, port) = split_authority(authority).ok_or_else(|| bad("expected `host:port`"))?;
        if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(bad("the host name is empty or contains spaces"));
        }
        let port = match (port, secure) {
            (Some(port), _) => port
                .parse()
                .map_err(|_| bad("the port must be 1 to 65535"))?,
            // Daemons behind a TLS proxy use the default port of the scheme.
            (None, Secure::Tls) => 443,
            (None, Secure::Plain) => DEFAULT_PORT,
        };
        Ok(Self::Tcp {
            host: host.to_owned(),
            port,
            secure,
            prefix: prefix.trim_end_matches('/').to_owned(),
        })
    }
}

fn split_authority(authority: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        return match after {
            "" => Some((host, None)),
            after => Some((host, Some(after.strip_prefix(':')?))),
        };
    }
    match authority.split_once(':') {
        Some((host, port)) if !port.contains(':') => Some((host, Some(port))),
        // No colon, or an IPv6 address without brackets.
        Some(_) | None => Some((authority, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let shown = match text.parse::<Endpoint>() {
            Ok(endpoint) => endpoint.to_string(),
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(shown, expected, "for {text:?}");
    }

    #[test]
    fn addresses_may_lack_the_scheme_and_the_port() {
        check("http://127.0.0.1:5410", "http://127.0.0.1:5410");
        check("http://127.0.0.1:5410/", "http://127.0.0.1:5410");
        check("box.example", "http://box.example:5410");
        check("box.example:80", "http://box.example:80");
        check("https://box.example", "https://box.example:443");
        check(
            "https://box.example/boxes/",
            "https://box.example:443/boxes",
        );
        check("http://[::1]:99", "http://[::1]:99");
        check("http://[::1]", "http://[::1]:5410");
        check(
            "unix:///run/boxwood/boxwood.sock",
            "unix:///run/boxwood/boxwood.sock",
        );
        check(
            "/run/boxwood/boxwood.sock",
            "unix:///run/boxwood/boxwood.sock",
        );
    }

    #[test]
    fn errors_of_invalid_addresses_name_the_reason() {
        check(
            "ftp://x",
            "error: `ftp://x` is not an address of a daemon: the scheme must be `http`, `https` or `unix`",
        );
        check(
            "http://x:99999",
            "error: `http://x:99999` is not an address of a daemon: the port must be 1 to 65535",
        );
        check(
            "http://:1",
            "error: `http://:1` is not an address of a daemon: the host name is empty or contains spaces",
        );
        check(
            "unix://run/x",
            "error: `unix://run/x` is not an address of a daemon: a unix socket needs an absolute path, as in `unix:///run/boxwood/boxwood.sock`",
        );
    }

    #[test]
    fn a_secret_in_an_address_is_refused() {
        assert!("http://me:secret@host".parse::<Endpoint>().is_err());
    }
}
