//! Which platform may speak, told from the headers of its handshake.
//!
//! Comes in: headers, and what the environment says about the platform. Goes out: the platform's
//! name, or a refusal. Never here: whether the peer is trusted at all; that was asked before, and
//! nothing here makes up for it but the control token, which is as good as a token of ours.

use std::fmt;
use std::sync::OnceLock;

use axum::http::{HeaderMap, HeaderName};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::langbot::python::is_python_space;

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
    #[error("{INSTANCE_VARIABLE} must be an instance's id: letters, digits and `._:-`")]
    Instance,
}

/// A platform, by the name it gives itself.
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

/// Only a digest is kept, and its `Debug` shows nothing.
struct ControlToken([u8; 32]);

impl ControlToken {
    fn new(text: &str) -> Option<Self> {
        let text = text.trim_matches(is_python_space);
        let good = text.chars().count() >= MIN_TOKEN_CHARS && !text.contains(is_python_space);
        good.then(|| Self(Sha256::digest(text.as_bytes()).into()))
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

/// Whether a platform nobody knows yet may become the one we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquaint {
    /// The control channel: whoever comes first is the platform of this daemon.
    First,
    /// The relay: only the platform that is known already.
    Never,
}

/// One platform per daemon: the one that was configured, or the first that came.
#[derive(Debug)]
pub(crate) struct Gate {
    token: Option<ControlToken>,
    configured: bool,
    known: OnceLock<Instance>,
}

impl Gate {
    /// Blank values are as good as none, which is how templates leave them.
    pub(crate) fn new(token: Option<&str>, instance: Option<&str>) -> Result<Self, InstanceError> {
        let given = |text: Option<&str>| -> Option<String> {
            text.map(|text| text.trim_matches(is_python_space).to_owned())
                .filter(|text| !text.is_empty())
        };
        let token = given(token)
            .map(|text| ControlToken::new(&text).ok_or(InstanceError::Token))
            .transpose()?;
        let known = OnceLock::new();
        if let Some(text) = given(instance) {
            let instance = Instance::new(&text).ok_or(InstanceError::Instance)?;
            known.get_or_init(|| instance);
        }
        Ok(Self {
            token,
            configured: known.get().is_some(),
            known,
        })
    }

    /// The platform that the environment names.
    pub(crate) fn configured(&self) -> Option<&Instance> {
        self.known.get().filter(|_| self.configured)
    }

    /// Whether the caller speaks today's dialect at all: June's clients know no such header.
    pub(crate) fn speaks_today(headers: &HeaderMap) -> bool {
        headers.contains_key(INSTANCE)
    }

    /// Whether this handshake shows the control token, and so needs no other.
    pub(crate) fn has_token(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else {
            return false;
        };
        only(headers, &CONTROL_TOKEN).is_some_and(|presented| token.matches(presented))
    }

    /// `None` is a refusal: a wrong or missing control token, a name that is none, or another
    /// platform than ours.
    pub(crate) fn judge(&self, headers: &HeaderMap, acquaint: Acquaint) -> Option<Instance> {
        if self.token.is_some() && !self.has_token(headers) {
            return None;
        }
        let named = only(headers, &INSTANCE)?;
        let instance = Instance::new(std::str::from_utf8(named).ok()?)?;
        let known = match acquaint {
            Acquaint::First => self.known.get_or_init(|| instance.clone()),
            Acquaint::Never => self.known.get()?,
        };
        (*known == instance).then_some(instance)
    }
}

/// A header that is there twice was added by somebody on the way, and is no header at all.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
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
    fn the_first_platform_becomes_the_one() {
        let gate = Gate::new(None, None).expect("gate");
        assert_eq!(gate.judge(&named("a"), Acquaint::Never), None);
        assert!(gate.judge(&named(" a "), Acquaint::First).is_some());
        assert!(gate.judge(&named("a"), Acquaint::Never).is_some());
        assert_eq!(gate.judge(&named("b"), Acquaint::First), None);
        assert_eq!(gate.configured(), None);
    }

    #[test]
    fn a_configured_platform_is_the_only_one() {
        let gate = Gate::new(Some("  "), Some(" a ")).expect("gate");
        assert_eq!(gate.judge(&named("b"), Acquaint::First), None);
        assert!(gate.judge(&named("a"), Acquaint::Never).is_some());
        assert_eq!(gate.configured().map(Instance::as_str), Some("a"));
    }

    #[test]
    fn names_that_are_none_are_refused() {
        let gate = Gate::new(None, None).expect("gate");
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
            assert_eq!(gate.judge(&named(name), Acquaint::First), None, "{name:?}");
        }
        assert_eq!(gate.judge(&HeaderMap::new(), Acquaint::First), None);
        let twice = headers(&[
            ("x-langbot-instance-id", "a"),
            ("x-langbot-instance-id", "a"),
        ]);
        assert_eq!(gate.judge(&twice, Acquaint::First), None);
        assert!(gate.known.get().is_none());
    }

    #[test]
    fn a_control_token_is_asked_of_everybody() {
        let gate = Gate::new(Some(&format!(" {TOKEN} ")), None).expect("gate");
        let with = |token: &str| {
            headers(&[
                ("x-langbot-instance-id", "a"),
                ("x-langbot-box-control-token", token),
            ])
        };
        assert_eq!(gate.judge(&named("a"), Acquaint::First), None);
        for wrong in ["", "0", &TOKEN[1..], &TOKEN.to_uppercase()] {
            assert!(!gate.has_token(&with(wrong)));
            assert_eq!(gate.judge(&with(wrong), Acquaint::First), None, "{wrong}");
        }
        assert!(gate.has_token(&with(TOKEN)));
        assert!(gate.judge(&with(TOKEN), Acquaint::First).is_some());
        let mut twice = with(TOKEN);
        twice.append(CONTROL_TOKEN, TOKEN.parse().expect("value"));
        assert!(!gate.has_token(&twice));
    }

    #[test]
    fn no_token_configured_means_none_is_right() {
        let gate = Gate::new(None, None).expect("gate");
        assert!(!gate.has_token(&headers(&[("x-langbot-box-control-token", "")])));
    }

    #[test]
    fn what_the_environment_says_must_make_sense() {
        let check = |token, instance, expected| {
            assert_eq!(Gate::new(token, instance).err(), expected);
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
        let gate = Gate::new(Some(TOKEN), None).expect("gate");
        assert!(!format!("{gate:?}").contains("0123"));
    }
}
