//! The address of a daemon as platforms write it.

use boxwood_client::{ClientError, Endpoint, Secure};

/// Parses the address of a runtime as platforms write it: `ws://` means `http://` and `wss://` means `https://`, the default
/// port is 5410 and the default host this machine. A path is ignored, because platforms write that of LangBot's RPC
/// (`/rpc/ws`).
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
                "the scheme must be `ws`, `wss`, `http`, `https` or `unix`",
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
        // With the text as written.
        Err(ClientError::BadUrl { why, .. }) => Err(bad(why)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn an_invalid_url_is_shown_as_written_with_the_reason() {
        url(
            "ftp://x",
            "error: `ftp://x` is not an address of a daemon: the scheme must be `ws`, `wss`, `http`, `https` or `unix`",
        );
        url(
            "ws://x:0x10",
            "error: `ws://x:0x10` is not an address of a daemon: the port must be 1 to 65535",
        );
        let error = runtime_endpoint("ws://me:secret@x").unwrap_err();
        assert!(error.to_string().contains("BOXWOOD_TOKEN"), "{error}");
    }
}
