//! Image names in the grammar of the container engines: `registry/path:tag@digest`.
//!
//! Valid names start with a letter, a digit or a bracket and contain neither spaces nor control
//! characters, so they cannot be mistaken for command-line options.

use std::sync::LazyLock;

use regex::Regex;

use crate::id::checked_text;

/// Maximum length in bytes.
const MAX_NAME_BYTES: usize = 255;
/// The engines' default tag.
const DEFAULT_TAG: &str = "latest";

/// The registry has to be checked further, see [`is_valid`].
const GRAMMAR: &str = r"(?x)^
    (?:
        (?<host>
            \[ (?<ip> [0-9a-fA-F:.]+ ) \]
            | [A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])? (?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*
        )
        (?: : (?<port>[0-9]+) )?
        /
    )?
    (?<path> [a-z0-9]+ (?: (?:[._]|__|-+)[a-z0-9]+ )* (?: / [a-z0-9]+ (?: (?:[._]|__|-+)[a-z0-9]+ )* )* )
    (?<tag> : [A-Za-z0-9_][A-Za-z0-9_.-]{0,127} )?
    (?<digest> @ [A-Za-z][A-Za-z0-9]* (?:[+._-][A-Za-z0-9]+)* : [0-9a-f]{32,} )?
$";

static NAME: LazyLock<Result<Regex, regex::Error>> = LazyLock::new(|| Regex::new(GRAMMAR));

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ImageNameError(String);

impl ImageNameError {
    pub fn hint(&self) -> &'static str {
        "image names look like `busybox`, `tools/python:3.12` or `registry.example:5000/tools/python:3.12`"
    }
}

checked_text!(
    /// A name that all engines parse the same way.
    #[schema(value_type = String)]
    ImageName,
    ImageNameError
);

impl ImageName {
    pub fn new(text: &str) -> Result<Self, ImageNameError> {
        let message = if text.is_empty() {
            "an image name must not be empty".to_owned()
        } else if text.len() > MAX_NAME_BYTES {
            let len = text.len();
            format!("an image name must be at most {MAX_NAME_BYTES} bytes, not {len}")
        } else if !is_valid(text) {
            let text = text.escape_debug();
            format!(
                "`{text}` is not a valid image name: its parts consist of lower-case letters, digits, `.`, `_` and `-`"
            )
        } else {
            return Ok(Self(text.to_owned()));
        };
        Err(ImageNameError(message))
    }

    /// The name with an explicit tag: `busybox` and `busybox:latest` are the same image.
    #[must_use]
    pub fn tagged(&self) -> Self {
        // A colon before the last slash belongs to the port of the registry.
        let last_part = self.0.rsplit('/').next().unwrap_or_default();
        if self.0.contains('@') || last_part.contains(':') {
            return self.clone();
        }
        Self(format!("{}:{DEFAULT_TAG}", self.0))
    }
}

fn is_valid(text: &str) -> bool {
    let Some(captures) = NAME.as_ref().ok().and_then(|name| name.captures(text)) else {
        return false;
    };
    let part = |name| captures.name(name).map(|part| part.as_str());
    let path = part("path").unwrap_or_default();
    let is_path_good = part("host").is_some()
        // The engines take a first part with a dot as a registry.
        || path.split_once('/').is_none_or(|(first, _)| !first.contains('.'))
            // 64 hexadecimal digits are the identifier of an image.
            && !(path.len() == 64 && path.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_path_good
        && part("ip").is_none_or(|ip| ip.parse::<std::net::Ipv6Addr>().is_ok())
        && part("port").is_none_or(|port| port.parse::<u16>().is_ok())
}
