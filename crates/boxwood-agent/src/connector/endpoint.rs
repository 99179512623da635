//! Selects the runtime from the configuration: a child process or an endpoint. Pure: no I/O.

use boxwood_client::{ClientError, Endpoint, Secure};

/// The name of the runtime's service in a compose file.
const COMPOSE_HOST: &str = "langbot_box";

/// Where the runtime is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeLocation {
    /// A daemon of our own, started and ended by us.
    Child,
    Elsewhere(Endpoint),
}

impl RuntimeLocation {
    /// `endpoint` is the configured address. `in_docker` says that this program runs in a container,
    /// where it has no boxes of its own; `standalone` that the runtime is started separately.
    pub fn choose(
        endpoint: Option<&str>,
        in_docker: bool,
        standalone: bool,
    ) -> Result<Self, ClientError> {
        let configured = endpoint.map(str::trim).filter(|text| !text.is_empty());
        Ok(match configured {
            Some(text) => Self::Elsewhere(runtime_endpoint(text)?),
            None if in_docker => Self::Elsewhere(compose_endpoint()),
            None if standalone => Self::Elsewhere(Endpoint::local()),
            None => Self::Child,
        })
    }

    /// Whether paths of the host mean the same there as here. What the operator says (`told`) wins.
    pub fn shares_filesystem(&self, told: Option<bool>) -> bool {
        told.unwrap_or(match self {
            Self::Child | Self::Elsewhere(Endpoint::Unix { .. }) => true,
            Self::Elsewhere(Endpoint::Tcp { .. }) => false,
        })
    }
}

/// Reads the address of a runtime as platforms write it: `ws://` is `http://` and `wss://` is
/// `https://`, the port is 5410 and the host this machine when left out, and a path is dropped, because
/// the one they write (`/rpc/ws`) is not ours.
pub fn runtime_endpoint(text: &str) -> Result<Endpoint, ClientError> {
    let bad = |why| ClientError::BadUrl {
        url: text.to_owned(),
        why,
    };
    let trimmed = text.trim();
    if trimmed.starts_with("unix://") || trimmed.starts_with('/') {
        return trimmed.parse();
    }
    let (secure, rest) = match trimmed.split_once("://") {
        Some(("ws" | "http", rest)) => (Secure::Plain, rest),
        Some(("wss" | "https", rest)) => (Secure::Tls, rest),
        Some(_) => {
            return Err(bad(
                "only `ws`, `wss`, `http`, `https` and `unix` are spoken",
            ));
        }
        None => (Secure::Plain, trimmed),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = if authority.is_empty() || authority.starts_with(':') {
        format!("127.0.0.1{authority}")
    } else {
        authority.to_owned()
    };
    match format!("http://{authority}").parse() {
        Ok(Endpoint::Tcp { host, port, .. }) => Ok(Endpoint::Tcp {
            host,
            port,
            secure,
            prefix: String::new(),
        }),
        Ok(Endpoint::Unix { .. }) => Err(bad("expected `host:port`")),
        // It speaks of what was written, not of what we made of it.
        Err(ClientError::BadUrl { why, .. }) => Err(bad(why)),
        Err(error) => Err(error),
    }
}

fn compose_endpoint() -> Endpoint {
    Endpoint::Tcp {
        host: COMPOSE_HOST.to_owned(),
        port: boxwood_client::DEFAULT_PORT,
        secure: Secure::Plain,
        prefix: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn place(endpoint: Option<&str>, in_docker: bool, standalone: bool) -> String {
        match RuntimeLocation::choose(endpoint, in_docker, standalone) {
            Ok(RuntimeLocation::Child) => "child".to_owned(),
            Ok(RuntimeLocation::Elsewhere(endpoint)) => endpoint.to_string(),
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn child_when_no_endpoint() {
        assert_eq!(place(None, false, false), "child");
        assert_eq!(place(Some("  "), false, false), "child");
    }

    #[test]
    fn elsewhere_when_endpoint_configured() {
        let text = Some("ws://box.example:6000/rpc/ws");
        assert_eq!(place(text, false, false), "http://box.example:6000");
        assert_eq!(place(text, true, true), "http://box.example:6000");
    }

    #[test]
    fn elsewhere_in_docker() {
        assert_eq!(place(None, true, false), "http://langbot_box:5410");
        assert_eq!(place(None, true, true), "http://langbot_box:5410");
    }

    #[test]
    fn elsewhere_with_standalone_flag() {
        assert_eq!(place(None, false, true), "http://127.0.0.1:5410");
    }

    #[track_caller]
    fn url(text: &str, expected: &str) {
        let shown = match runtime_endpoint(text) {
            Ok(endpoint) => endpoint.to_string(),
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(shown, expected, "for {text:?}");
    }

    #[test]
    fn url_default() {
        url("ws://", "http://127.0.0.1:5410");
        url("ws://box.example", "http://box.example:5410");
        url("wss://box.example", "https://box.example:5410");
        url("box.example", "http://box.example:5410");
        url("ws://:7000", "http://127.0.0.1:7000");
        url("ws://[::1]", "http://[::1]:5410");
    }

    #[test]
    fn url_explicit() {
        url("http://box.example:1/", "http://box.example:1");
        url("https://box.example:443/a/b?c#d", "https://box.example:443");
        url(" ws://langbot-box:5410 ", "http://langbot-box:5410");
        url("unix:///run/b.sock", "unix:///run/b.sock");
        url("/run/b.sock", "unix:///run/b.sock");
    }

    #[test]
    fn a_url_that_cannot_work_says_why_in_the_words_it_was_written() {
        url(
            "ftp://x",
            "error: `ftp://x` is not an address of a daemon: only `ws`, `wss`, `http`, `https` and `unix` are spoken",
        );
        url(
            "ws://x:0x10",
            "error: `ws://x:0x10` is not an address of a daemon: the port must be 1 to 65535",
        );
        let error = runtime_endpoint("ws://me:secret@x").unwrap_err();
        assert!(error.to_string().contains("BOXWOOD_TOKEN"), "{error}");
    }

    #[test]
    fn files_are_shared_with_a_child_and_over_a_unix_socket() {
        let shares = |text: Option<&str>, told| {
            let place = RuntimeLocation::choose(text, false, false).unwrap();
            place.shares_filesystem(told)
        };
        assert!(shares(None, None));
        assert!(shares(Some("unix:///run/b.sock"), None));
        assert!(!shares(Some("ws://127.0.0.1"), None));
        assert!(shares(Some("ws://127.0.0.1"), Some(true)));
        assert!(!shares(None, Some(false)));
    }
}
