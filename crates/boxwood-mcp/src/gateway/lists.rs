//! Lists of one server's things, whole.
//!
//! Comes in: a way to ask one server. Goes out: everything it lists, page by page, each thing as it was
//! written. Bounded: a server that never ends its list is cut off.

use boxwood_api::McpServerName;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use super::behind::Behind;
use super::json::{items, object, raw};
use super::refusal::{INTERNAL_ERROR, Refusal};
use crate::wire::{Message, Object};

const MOST_PAGES: usize = 100;
const MOST_ITEMS: usize = 5000;
pub(crate) const MOST_BYTES: usize = 16 << 20;

/// What can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl Kind {
    pub(crate) fn of(method: &str) -> Option<Self> {
        Some(match method {
            "tools/list" => Self::Tools,
            "prompts/list" => Self::Prompts,
            "resources/list" => Self::Resources,
            "resources/templates/list" => Self::Templates,
            _ => return None,
        })
    }

    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    /// Where the things stand in a result.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    pub(crate) fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources | Self::Templates => "resources",
        }
    }

    /// What names a thing of this kind.
    pub(crate) fn name_key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }
}

/// One page: the parameters go in, the answer comes out.
pub(crate) type Page<'a> =
    dyn Fn(Option<Box<RawValue>>) -> BoxFuture<'a, Result<Message, Refusal>> + Send + Sync + 'a;

/// Everything of that kind. `params` go with every page, with the cursor put in.
pub(crate) async fn drained(
    kind: Kind,
    server: &McpServerName,
    params: &Object,
    page: &Page<'_>,
) -> Result<Vec<Box<RawValue>>, Refusal> {
    let mut all: Vec<Box<RawValue>> = Vec::new();
    let mut bytes = 0;
    let mut cursor: Option<Box<RawValue>> = None;
    for _ in 0..MOST_PAGES {
        let mut params = params.clone();
        if let Some(cursor) = cursor.take() {
            params.set("cursor", cursor);
        }
        let answer = page((!params.is_empty()).then(|| params.raw())).await?;
        let Some(result) = answer.outcome().and_then(object) else {
            return Err(refused(kind, server, &answer));
        };
        let listed = result.get(kind.key()).and_then(items).unwrap_or_default();
        for item in listed {
            bytes += item.get().len();
            if all.len() >= MOST_ITEMS || bytes > MOST_BYTES {
                return Ok(all);
            }
            all.push(item.to_owned());
        }
        match result.get("nextCursor").filter(|next| next.get() != "null") {
            None => return Ok(all),
            Some(next) => cursor = Some(next.to_owned()),
        }
    }
    Ok(all)
}

fn refused(kind: Kind, server: &McpServerName, answer: &Message) -> Refusal {
    let method = kind.method();
    match answer.error_words() {
        Some((code, text)) => Refusal::new(code, text.chars().take(500).collect::<String>()),
        None => Refusal::new(
            INTERNAL_ERROR,
            format!("the answer of `{server}` to `{method}` is no list"),
        ),
    }
}

/// The tools in an answer to `tools/list` that clients may see.
pub(crate) fn filtered(behind: &dyn Behind, answer: Message) -> Message {
    if behind.admits_all() {
        return answer;
    }
    admitted(behind.name(), answer, |tool| behind.admits(tool))
}

/// Of what cannot be read nobody sees anything.
fn admitted(server: &McpServerName, answer: Message, admits: impl Fn(&str) -> bool) -> Message {
    let Some(result) = answer.outcome() else {
        return answer;
    };
    let is_admitted = |tool: &&RawValue| {
        let name = object(tool).and_then(|tool| tool.text("name"));
        name.is_some_and(|name| admits(&name))
    };
    let result = object(result);
    let tools = result.as_ref().and_then(|it| it.get(Kind::Tools.key()));
    let tools = tools.and_then(items).map(|tools| {
        let tools: Vec<&RawValue> = tools.into_iter().filter(is_admitted).collect();
        raw(&tools)
    });
    let (Some(mut result), Some(tools)) = (result, tools) else {
        return refused(Kind::Tools, server, &answer).message(answer.id());
    };
    result.set(Kind::Tools.key(), tools);
    answer.with_result(result.raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_cannot_be_read_shows_no_tool() {
        let server = McpServerName::new("odd").expect("a legal name");
        let seen = |result: &str| {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            let answer = Message::parse(answer.as_bytes()).expect("a message");
            let seen = admitted(&server, answer, |tool| tool == "open");
            String::from_utf8(seen.json().to_vec()).expect("UTF-8")
        };
        let both = r#"[{"name":"open"},{"name":"secret"},7]"#;
        assert_eq!(
            seen(&format!(r#"{{"tools":{both},"x":1}}"#)),
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"open"}],"x":1}}"#
        );
        for odd in [
            format!(r#"{{"tools":[],"tools":{both}}}"#),
            format!(r#"{{"tools":{{"all":{both}}}}}"#),
            format!(r#"{{"Tools":{both}}}"#),
            both.to_owned(),
        ] {
            let seen = seen(&odd);
            assert!(!seen.contains("secret"), "{seen}");
            assert!(seen.contains(r#""id":1,"error""#), "{seen}");
        }
    }
}
