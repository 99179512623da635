//! Refuses requests from web pages.
//!
//! A page in a local browser connects under the user's uid, which may be trusted. It is detected by
//! its `Origin` and, in case of DNS rebinding, by the `Host`.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Uri, header};

/// Why a request is refused as one from a web page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BrowserRefusal {
    #[error("cross-origin requests from web pages are not allowed")]
    Origin,
    #[error("the Host header does not match this daemon")]
    Host,
}

impl BrowserRefusal {
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Origin => "call the API from a program, or from a page of the same origin",
            Self::Host => {
                "use the daemon's address, or add the name to `hosts` under `[http]`, or send a token"
            }
        }
    }
}

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses cross-origin requests. Programs send neither header.
pub(crate) fn check_browser(headers: &HeaderMap, uri: &Uri) -> Result<(), BrowserRefusal> {
    for site in headers.get_all(FETCH_SITE) {
        // `none` is a user-initiated navigation.
        if !matches!(site.as_bytes(), b"same-origin" | b"none") {
            return Err(BrowserRefusal::Origin);
        }
    }
    for origin in headers.get_all(header::ORIGIN) {
        let same = origin
            .to_str()
            .is_ok_and(|origin| is_same_origin(origin, headers, uri));
        if !same {
            return Err(BrowserRefusal::Origin);
        }
    }
    Ok(())
}

/// Ignores the scheme except for its default port: behind a TLS proxy the page uses `https`, the
/// daemon does not.
fn is_same_origin(origin: &str, headers: &HeaderMap, uri: &Uri) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else {
        return false;
    };
    let default_port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return false,
    };
    let Ok(origin) = authority.parse::<Authority>() else {
        return false;
    };
    let Ok(Some(host)) = host_of(headers, uri) else {
        return false;
    };
    origin.host().eq_ignore_ascii_case(host.host())
        && origin.port_u16().unwrap_or(default_port) == host.port_u16().unwrap_or(default_port)
}

/// Refuses an unknown `Host`, which indicates DNS rebinding.
pub(crate) fn check_host(
    headers: &HeaderMap,
    uri: &Uri,
    local: IpAddr,
    names: &[String],
) -> Result<(), BrowserRefusal> {
    let host = host_of(headers, uri)
        .ok()
        .flatten()
        .ok_or(BrowserRefusal::Host)?;
    let name = host.host();
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .unwrap_or(name);
    let is_own = if let Ok(ip) = bare.parse::<IpAddr>() {
        ip.to_canonical().is_loopback() || ip.to_canonical() == local
    } else {
        let name = bare.strip_suffix('.').unwrap_or(bare);
        name.eq_ignore_ascii_case("localhost")
            || names.iter().any(|known| known.eq_ignore_ascii_case(name))
    };
    is_own.then_some(()).ok_or(BrowserRefusal::Host)
}

/// The host that a request names. Conflicting hosts are refused.
fn host_of(headers: &HeaderMap, uri: &Uri) -> Result<Option<Authority>, BrowserRefusal> {
    let mut found = uri.authority().cloned();
    for header in headers.get_all(header::HOST) {
        let authority = header
            .to_str()
            .ok()
            .and_then(|text| text.parse::<Authority>().ok())
            .filter(|authority| !authority.as_str().contains('@'))
            .ok_or(BrowserRefusal::Host)?;
        match &found {
            Some(known) if known != &authority => return Err(BrowserRefusal::Host),
            _ => found = Some(authority),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_bytes(name.as_bytes()).expect("name"),
                    value.parse().expect("value"),
                )
            })
            .collect()
    }

    #[test]
    fn only_names_of_this_daemon_are_valid_hosts() {
        let local: IpAddr = "192.0.2.7".parse().expect("address");
        let names = ["box.example.com".to_owned()];
        let check = |pairs: &[(&str, &str)], expected: bool| {
            let got = check_host(&headers(pairs), &Uri::from_static("/"), local, &names);
            assert_eq!(got.is_ok(), expected, "{pairs:?}");
        };
        for own in [
            "127.0.0.1:5410",
            "127.9.9.9",
            "[::1]:5410",
            "localhost",
            "LOCALHOST.:1",
            "192.0.2.7:5410",
            "Box.Example.com",
        ] {
            check(&[("host", own)], true);
        }
        for foreign in [
            "evil.example",
            "192.0.2.8",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "evil.example@localhost",
            "",
        ] {
            check(&[("host", foreign)], false);
        }
        check(&[], false);
        check(&[("host", "localhost"), ("host", "evil.example")], false);
    }

    #[test]
    fn only_the_daemons_own_pages_may_call() {
        let check = |pairs: &[(&str, &str)], expected: bool| {
            let mut all = vec![("host", "localhost:5410")];
            all.extend(pairs);
            let got = check_browser(&headers(&all), &Uri::from_static("/"));
            assert_eq!(got.is_ok(), expected, "{pairs:?}");
        };
        check(&[], true);
        check(&[("origin", "http://localhost:5410")], true);
        check(&[("origin", "https://localhost:5410")], true);
        check(&[("origin", "http://localhost")], false);
        check(&[("origin", "http://localhost:5411")], false);
        check(&[("origin", "http://evil.example")], false);
        check(&[("origin", "null")], false);
        check(&[("origin", "file://")], false);
        check(&[("origin", "chrome-extension://localhost:5410")], false);
        check(&[("sec-fetch-site", "cross-site")], false);
        check(&[("sec-fetch-site", "same-site")], false);
        check(&[("sec-fetch-site", "none")], true);
        check(
            &[
                ("origin", "http://localhost:5410"),
                ("origin", "http://evil.example"),
            ],
            false,
        );
    }
}
