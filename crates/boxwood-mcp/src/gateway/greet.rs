//! The beginning of a session: which process it gets, and what its server says of itself.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::bridged::Bridged;
use super::json;
use super::members::Members;
use super::own::Own;
use super::refusal::{INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, Refusal};
use super::session::{Greeted, Link, Session};
use super::upstream::Upstream;
use super::{Inner, Target, versions};
use crate::hosting::HostingError;
use crate::wire::{Era, Object};

/// Bytes of a client's parameters: they are kept for as long as its session, and each process of its own is
/// greeted with them.
const LONGEST_INITIALIZE: usize = 64 * 1024;

/// What of its capabilities lets a server ask a client.
const ASKED: [&str; 3] = ["sampling", "elicitation", "roots"];

/// The result of `initialize`, with every field the server gave it.
pub(crate) async fn greet(
    inner: &Arc<Inner>,
    session: &Arc<Session>,
    params: Option<&RawValue>,
) -> Result<Box<RawValue>, Refusal> {
    let bad = |text: &str| Refusal::new(INVALID_PARAMS, text);
    let raw = params.ok_or_else(|| bad("`initialize` needs params"))?;
    if raw.get().len() > LONGEST_INITIALIZE {
        let text = format!("the params of `initialize` have more than {LONGEST_INITIALIZE} bytes");
        return Err(bad(&text));
    }
    let params = Object::parse(raw.get()).map_err(|error| bad(&format!("params are {error}")))?;
    let requested = params.text("protocolVersion");
    let requested = requested.ok_or_else(|| bad("`protocolVersion` must be a string"))?;

    let upstream = Upstream::find(&inner.all, session.target()).await;
    let upstream = upstream.map_err(|error| Refusal::from(&error))?;
    if let Some(behind) = upstream.behind() {
        let greeting = behind.greeting();
        if can_be_asked(&params) && greeting.era == Era::Modern {
            let (result, version) = shown(&upstream, &requested)?;
            let bridged = Bridged::begin(session, inner.all.house(), behind.as_ref(), raw);
            return begun(session, version, Link::Bridged(bridged), result);
        }
        // One with tasks knows a single owner of them.
        let is_own = can_be_asked(&params) || greeting.has("tasks");
        if is_own && greeting.era == Era::Legacy {
            match Own::start(session, Arc::clone(behind), raw.to_owned()).await {
                Ok((own, greeting)) => {
                    let version = greeting.protocol_version.clone();
                    let result = greeting.result.clone();
                    return begun(session, version, Link::Own(own), result);
                }
                // Better served without being asked than not at all.
                Err(HostingError::Full { .. }) => {}
                Err(error) => return Err(Refusal::from(&error)),
            }
        }
    }

    let (result, version) = shown(&upstream, &requested)?;
    let members = match session.target() {
        Target::One(name) => Members::of_one(inner, session, name),
        Target::All => Members::of_all(inner, session),
    };
    if can_be_asked(&params) && *session.target() == Target::All {
        let (upstream, asked) = Upstream::company(&inner.all, raw);
        let bridged = Bridged::over(session, upstream, asked);
        return begun(session, version, Link::Company(members, bridged), result);
    }
    begun(session, version, Link::Shared(members), result)
}

/// What a process said that was greeted before, in the revision that this client gets.
fn shown(upstream: &Upstream, requested: &str) -> Result<(Box<RawValue>, String), Refusal> {
    let greeting = upstream.greeting();
    let mut result = Object::parse(greeting.get()).map_err(|error| {
        Refusal::new(INTERNAL_ERROR, format!("the server's greeting is {error}"))
    })?;
    let spoken = result.text("protocolVersion").unwrap_or_default();
    let version = versions::negotiated(requested, &spoken);
    result.set("protocolVersion", json::raw(&version));
    Ok((result.raw(), version))
}

fn begun(
    session: &Session,
    version: String,
    link: Link,
    result: Box<RawValue>,
) -> Result<Box<RawValue>, Refusal> {
    if session.greet(Greeted { version, link }) {
        Ok(result)
    } else {
        let text = "the session has begun already with another `initialize`";
        Err(Refusal::new(INVALID_REQUEST, text))
    }
}

fn can_be_asked(params: &Object) -> bool {
    let capabilities = params.get("capabilities");
    let capabilities = capabilities.and_then(|raw| Object::parse(raw.get()).ok());
    let named = |key: &&str| {
        let value = capabilities.as_ref().and_then(|all| all.get(key));
        value.is_some_and(|value| value.get() != "null")
    };
    ASKED.iter().any(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_client_that_can_be_asked_needs_a_process_of_its_own() {
        let cases = [
            (r#"{"capabilities":{}}"#, false),
            (r#"{"capabilities":{"experimental":{}}}"#, false),
            (r#"{"capabilities":{"roots":null}}"#, false),
            (r#"{"capabilities":{"roots":{"listChanged":true}}}"#, true),
            (r#"{"capabilities":{"elicitation":{}}}"#, true),
            (r#"{"capabilities":{"sampling":{}}}"#, true),
            ("{}", false),
        ];
        for (text, expected) in cases {
            let params = Object::parse(text).expect("an object");
            assert_eq!(can_be_asked(&params), expected, "{text}");
        }
    }
}
