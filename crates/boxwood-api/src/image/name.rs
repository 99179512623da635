//! Image names in the grammar of the container engines: `registry/path:tag@digest`.
//!
//! Valid names start with a letter, a digit or a bracket and contain neither spaces nor control
//! characters, so they cannot be mistaken for command-line options.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum length in bytes.
const MAX_NAME_BYTES: usize = 255;
const MAX_TAG_BYTES: usize = 128;
/// The engines' default tag.
const DEFAULT_TAG: &str = "latest";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageNameError {
    #[error("an image name must not be empty")]
    Empty,
    #[error("an image name must be at most {MAX_NAME_BYTES} bytes, not {len}")]
    TooLong { len: usize },
    #[error("`{part}` is no image name: {why}")]
    Bad { part: String, why: &'static str },
}

impl ImageNameError {
    pub fn hint(&self) -> &'static str {
        "image names look like `busybox`, `tools/python:3.12` or `registry.example:5000/tools/python:3.12`"
    }
}

/// A name that all engines parse the same way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String)]
pub struct ImageName(String);

impl ImageName {
    pub fn new(text: &str) -> Result<Self, ImageNameError> {
        if text.is_empty() {
            return Err(ImageNameError::Empty);
        }
        if text.len() > MAX_NAME_BYTES {
            return Err(ImageNameError::TooLong { len: text.len() });
        }
        check(text)?;
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name with an explicit tag: `busybox` and `busybox:latest` are the same image.
    #[must_use]
    pub fn tagged(&self) -> Self {
        if self.0.contains('@') || tag_begins_at(&self.0).is_some() {
            return self.clone();
        }
        Self(format!("{}:{DEFAULT_TAG}", self.0))
    }
}

fn check(text: &str) -> Result<(), ImageNameError> {
    let (named, digest) = match text.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (text, None),
    };
    let (repository, tag) = match tag_begins_at(named) {
        Some(at) => (&named[..at], Some(&named[at + 1..])),
        None => (named, None),
    };
    check_repository(repository)?;
    if let Some(tag) = tag {
        check_tag(tag)?;
    }
    if let Some(digest) = digest {
        check_digest(digest)?;
    }
    Ok(())
}

/// The last colon after the last slash. An earlier one belongs to the port of the registry.
fn tag_begins_at(named: &str) -> Option<usize> {
    let last_part = named.rfind('/').map_or(0, |slash| slash + 1);
    named[last_part..].find(':').map(|colon| last_part + colon)
}

fn check_repository(repository: &str) -> Result<(), ImageNameError> {
    if repository.len() == 64 && repository.bytes().all(is_hex) {
        return Err(bad(
            repository,
            "64 hexadecimal digits are an image's identifier",
        ));
    }
    let path = match repository.split_once('/') {
        Some((first, path)) if is_registry(first) => {
            check_registry(first)?;
            path
        }
        _ => repository,
    };
    path.split('/').try_for_each(check_component)
}

/// As in the engines, a registry has a dot, a port or a capital letter, or is `localhost`.
fn is_registry(first: &str) -> bool {
    first == "localhost"
        || first.contains(['.', ':'])
        || first.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn check_registry(registry: &str) -> Result<(), ImageNameError> {
    let (host, port) = match registry.strip_prefix('[') {
        Some(rest) => {
            let (address, after) = rest
                .split_once(']')
                .ok_or_else(|| bad(registry, "the bracket is not closed"))?;
            address
                .parse::<std::net::Ipv6Addr>()
                .map_err(|_| bad(registry, "this is no IPv6 address"))?;
            match after.strip_prefix(':') {
                Some(port) => (None, Some(port)),
                None if after.is_empty() => (None, None),
                None => return Err(bad(registry, "only a port may follow the address")),
            }
        }
        None => match registry.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(registry), None),
        },
    };
    if let Some(host) = host {
        for label in host.split('.') {
            let ends_well = !label.starts_with('-') && !label.ends_with('-');
            let letters = label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            if label.is_empty() || !letters || !ends_well {
                return Err(bad(registry, "this is no host name"));
            }
        }
    }
    match port {
        Some(port) if port.parse::<u16>().is_err() || port.starts_with('+') => {
            Err(bad(registry, "the port must be a number"))
        }
        _ => Ok(()),
    }
}

/// Lower-case letters and digits, separated by `.`, `_`, `__` or dashes.
fn check_component(component: &str) -> Result<(), ImageNameError> {
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if component.is_empty() {
        return Err(bad(component, "a part of it is empty"));
    }
    let bytes = component.as_bytes();
    if !bytes
        .iter()
        .all(|&byte| word(byte) || b"._-".contains(&byte))
    {
        return Err(bad(
            component,
            "use lower-case letters, digits, `.`, `_` and `-`",
        ));
    }
    let ends = [bytes.first(), bytes.last()];
    if !ends.into_iter().flatten().all(|&byte| word(byte)) {
        return Err(bad(
            component,
            "it must begin and end with a letter or a digit",
        ));
    }
    let mut between = component.split(|c: char| c.is_ascii_alphanumeric());
    if between.any(|run| !(matches!(run, "" | "." | "_" | "__") || run.bytes().all(|b| b == b'-')))
    {
        return Err(bad(
            component,
            "between letters stand one `.`, one or two `_`, or dashes",
        ));
    }
    Ok(())
}

fn check_tag(tag: &str) -> Result<(), ImageNameError> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let fits = tag.len() <= MAX_TAG_BYTES;
    let first = tag.bytes().next().is_some_and(word);
    if fits && first && tag.bytes().all(|b| word(b) || b == b'.' || b == b'-') {
        return Ok(());
    }
    Err(bad(
        tag,
        "a tag has up to 128 letters, digits, `_`, `.` and `-`, and begins with a letter, a digit or `_`",
    ))
}

fn check_digest(digest: &str) -> Result<(), ImageNameError> {
    let why = "a digest is `sha256:` and 64 hexadecimal digits, or alike";
    let (algorithm, hex) = digest.split_once(':').ok_or_else(|| bad(digest, why))?;
    let begins = algorithm
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic());
    let words = algorithm
        .split(['+', '.', '_', '-'])
        .all(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric()));
    if begins && words && hex.len() >= 32 && hex.bytes().all(is_hex) {
        return Ok(());
    }
    Err(bad(digest, why))
}

fn is_hex(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

fn bad(part: &str, why: &'static str) -> ImageNameError {
    ImageNameError::Bad {
        part: part.escape_debug().to_string(),
        why,
    }
}

impl TryFrom<String> for ImageName {
    type Error = ImageNameError;
    fn try_from(text: String) -> Result<Self, ImageNameError> {
        Self::new(&text)
    }
}

impl std::str::FromStr for ImageName {
    type Err = ImageNameError;
    fn from_str(text: &str) -> Result<Self, ImageNameError> {
        Self::new(text)
    }
}

impl From<ImageName> for String {
    fn from(name: ImageName) -> Self {
        name.0
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
