//! Identifies the LangBot instance from the headers of its handshake.
//!
//! Whether the peer is trusted was checked before. Only the control token replaces that check: it is
//! equivalent to a token of the daemon.

use std::fmt;
use std::sync::OnceLock;

use http::{HeaderMap, HeaderName};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::params::is_python_space;

const INSTANCE: HeaderName = HeaderName::from_static("x-langbot-instance-id");
const CONTROL_TOKEN: HeaderName = HeaderName::from_static("x-langbot-box-control-token");

pub(crate) const TOKEN_VARIABLE: &str = "LANGBOT_BOX_CONTROL_TOKEN";
pub(crate) const INSTANCE_VARIABLE: &str = "LANGBOT_BOX_TRUSTED_INSTANCE_UUID";

const MIN_TOKEN_CHARS: usize = 32;
const MAX_INSTANCE_BYTES: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InstanceError {
    #[error("{TOKEN_VARIABLE} must be at least {MIN_TOKEN_CHARS} characters without white space")]
    Token,
    #[error("{INSTANCE_VARIABLE} must be an instance id: letters, digits and `._:-`")]
    Instance,
}

/// The id of a LangBot instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instance(String);

impl Instance {
    pub(crate) fn new(text: &str) -> Option<Self> {
        let text = text.trim_matches(is_python_space);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        let well_formed = text.len() <= MAX_INSTANCE_BYTES
            && text
                .bytes()
                .next()
                .is_some_and(|first| first.is_ascii_alphanumeric())
            && text.bytes().all(plain);
        well_formed.then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Only the digest is kept, and `Debug` does not print it.
struct ControlToken([u8; 32]);

impl ControlToken {
    fn new(text: &str) -> Option<Self> {
        let text = text.trim_matches(is_python_space);
        let well_formed =
            text.chars().count() >= MIN_TOKEN_CHARS && !text.contains(is_python_space);
        well_formed.then(|| Self(Sha256::digest(text.as_bytes()).into()))
    }

    fn matches(&self, presented: &[u8]) -> bool {
        let presented: [u8; 32] = Sha256::digest(presented).into();
        self.0.ct_eq(&presented).into()
    }
}

impl fmt::Debug for ControlToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControlToken(…)")
    }
}

/// Whether an unknown instance may become the instance of this daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enrollment {
    /// The control channel: the first instance becomes the instance of this daemon.
    FirstWins,
    /// The relay: only the known instance.
    KnownOnly,
}

/// Admits one instance per daemon: the configured one, or the first that connects.
#[derive(Debug)]
pub(crate) struct InstanceGate {
    token: Option<ControlToken>,
    configured: bool,
    known: OnceLock<Instance>,
}

impl InstanceGate {
    /// Blank values count as absent: templates leave them so.
    pub(crate) fn new(token: Option<&str>, instance: Option<&str>) -> Result<Self, InstanceError> {
        let is_set = |text: &&str| !text.trim_matches(is_python_space).is_empty();
        let token = token
            .filter(is_set)
            .map(|text| ControlToken::new(text).ok_or(InstanceError::Token));
        let instance = instance
            .filter(is_set)
            .map(|text| Instance::new(text).ok_or(InstanceError::Instance));
        let instance = instance.transpose()?;
        Ok(Self {
            token: token.transpose()?,
            configured: instance.is_some(),
            known: instance.map_or_else(OnceLock::new, OnceLock::from),
        })
    }

    /// The instance that the environment names.
    pub(crate) fn configured(&self) -> Option<&Instance> {
        self.known.get().filter(|_| self.configured)
    }

    /// Returns true for clients of SDK 0.7. Those of 0.4 do not send the header.
    pub(crate) fn is_v0_7(headers: &HeaderMap) -> bool {
        headers.contains_key(INSTANCE)
    }

    /// Returns true if the handshake has the control token, and the instance header of SDK 0.7.
    pub(crate) fn has_token(&self, headers: &HeaderMap) -> bool {
        let presented = single_header(headers, &CONTROL_TOKEN);
        let matching = self.token.as_ref().zip(presented);
        Self::is_v0_7(headers) && matching.is_some_and(|(token, sent)| token.matches(sent))
    }

    /// `None` if the control token is wrong or missing, or the instance id is invalid or unknown.
    pub(crate) fn authenticate(
        &self,
        headers: &HeaderMap,
        enrollment: Enrollment,
    ) -> Option<Instance> {
        if self.token.is_some() && !self.has_token(headers) {
            return None;
        }
        let named = single_header(headers, &INSTANCE)?;
        let instance = Instance::new(std::str::from_utf8(named).ok()?)?;
        let known = match enrollment {
            Enrollment::FirstWins => self.known.get_or_init(|| instance.clone()),
            Enrollment::KnownOnly => self.known.get()?,
        };
        (*known == instance).then_some(instance)
    }
}

/// The value of a header that occurs exactly once. A duplicate may have been added on the way.
pub(crate) fn single_header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).into_iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let value = value.as_bytes().try_into().expect("header value");
            headers.append(HeaderName::from_static(name), value);
        }
        headers
    }

    fn named(instance: &str) -> HeaderMap {
        headers(&[("x-langbot-instance-id", instance)])
    }

    #[test]
    fn the_first_instance_becomes_the_known_one() {
        let gate = InstanceGate::new(None, None).expect("gate");
        assert_eq!(gate.authenticate(&named("a"), Enrollment::KnownOnly), None);
        assert!(
            gate.authenticate(&named(" a "), Enrollment::FirstWins)
                .is_some()
        );
        assert!(
            gate.authenticate(&named("a"), Enrollment::KnownOnly)
                .is_some()
        );
        assert_eq!(gate.authenticate(&named("b"), Enrollment::FirstWins), None);
        assert_eq!(gate.configured(), None);
    }

    #[test]
    fn a_configured_instance_is_the_only_one() {
        let gate = InstanceGate::new(Some("  "), Some(" a ")).expect("gate");
        assert_eq!(gate.authenticate(&named("b"), Enrollment::FirstWins), None);
        assert!(
            gate.authenticate(&named("a"), Enrollment::KnownOnly)
                .is_some()
        );
        assert_eq!(gate.configured().map(Instance::as_str), Some("a"));
    }

    #[test]
    fn invalid_instance_ids_are_rejected() {
        let gate = InstanceGate::new(None, None).expect("gate");
        let long = "x".repeat(129);
        for name in [
            "",
            " ",
            "-a",
            ".a",
            "a b",
            "a/b",
            "ä",
            "a\tb",
            long.as_str(),
        ] {
            assert_eq!(
                gate.authenticate(&named(name), Enrollment::FirstWins),
                None,
                "{name:?}"
            );
        }
        assert_eq!(
            gate.authenticate(&HeaderMap::new(), Enrollment::FirstWins),
            None
        );
        let twice = headers(&[
            ("x-langbot-instance-id", "a"),
            ("x-langbot-instance-id", "a"),
        ]);
        assert_eq!(gate.authenticate(&twice, Enrollment::FirstWins), None);
        assert!(gate.known.get().is_none());
    }

    #[test]
    fn a_configured_control_token_is_required() {
        let gate = InstanceGate::new(Some(&format!(" {TOKEN} ")), None).expect("gate");
        let with = |token: &str| {
            headers(&[
                ("x-langbot-instance-id", "a"),
                ("x-langbot-box-control-token", token),
            ])
        };
        assert_eq!(gate.authenticate(&named("a"), Enrollment::FirstWins), None);
        for wrong in ["", "0", &TOKEN[1..], &TOKEN.to_uppercase()] {
            assert!(!gate.has_token(&with(wrong)));
            assert_eq!(
                gate.authenticate(&with(wrong), Enrollment::FirstWins),
                None,
                "{wrong}"
            );
        }
        assert!(gate.has_token(&with(TOKEN)));
        assert!(
            gate.authenticate(&with(TOKEN), Enrollment::FirstWins)
                .is_some()
        );
        let mut twice = with(TOKEN);
        twice.append(CONTROL_TOKEN, TOKEN.parse().expect("value"));
        assert!(!gate.has_token(&twice));
    }

    #[test]
    fn without_a_configured_token_no_token_matches() {
        let gate = InstanceGate::new(None, None).expect("gate");
        assert!(!gate.has_token(&headers(&[("x-langbot-box-control-token", "")])));
    }

    #[test]
    fn invalid_environment_values_are_rejected() {
        let check = |token, instance, expected| {
            assert_eq!(InstanceGate::new(token, instance).err(), expected);
        };
        check(Some("short"), None, Some(InstanceError::Token));
        check(
            Some("0123456789abcdef 0123456789abcdef"),
            None,
            Some(InstanceError::Token),
        );
        check(None, Some("-x"), Some(InstanceError::Instance));
        check(Some(TOKEN), Some("x"), None);
    }

    #[test]
    fn a_token_is_not_printed() {
        let gate = InstanceGate::new(Some(TOKEN), None).expect("gate");
        assert!(!format!("{gate:?}").contains("0123"));
    }
}
