//! Reads complete lists of one server, page by page. The number of pages and the size are bounded.

use boxwood_api::McpServerName;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use crate::gateway::error::{INTERNAL_ERROR, RpcError};
use crate::gateway::json::{items, object};
use crate::wire::{Message, Object};

const MAX_PAGES: usize = 100;
const MAX_ITEMS: usize = 5000;
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// Kinds of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    pub(crate) fn of(method: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|kind| kind.method() == method)
    }

    pub(crate) fn method(self) -> &'static str {
        self.names()[0]
    }

    /// Key of the items in a result.
    pub(crate) fn key(self) -> &'static str {
        self.names()[1]
    }

    pub(crate) fn capability(self) -> &'static str {
        self.names()[2]
    }

    /// Key that identifies an item.
    pub(crate) fn name_key(self) -> &'static str {
        self.names()[3]
    }

    fn names(self) -> [&'static str; 4] {
        match self {
            Self::Tools => ["tools/list", "tools", "tools", "name"],
            Self::Prompts => ["prompts/list", "prompts", "prompts", "name"],
            Self::Resources => ["resources/list", "resources", "resources", "uri"],
            Self::Templates => [
                "resources/templates/list",
                "resourceTemplates",
                "resources",
                "uriTemplate",
            ],
        }
    }
}

/// Requests one page with these parameters.
pub(crate) type Page<'a> =
    dyn Fn(Option<Box<RawValue>>) -> BoxFuture<'a, Result<Message, RpcError>> + Send + Sync + 'a;

/// Returns all items. `params` are sent with every page; the cursor is added.
pub(crate) async fn all_items(
    kind: Kind,
    server: &McpServerName,
    params: &Object,
    page: &Page<'_>,
) -> Result<Vec<Box<RawValue>>, RpcError> {
    let mut all: Vec<Box<RawValue>> = Vec::new();
    let mut bytes = 0;
    let mut cursor: Option<Box<RawValue>> = None;
    for _ in 0..MAX_PAGES {
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
            if all.len() >= MAX_ITEMS || bytes > MAX_BYTES {
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

pub(crate) fn refused(kind: Kind, server: &McpServerName, answer: &Message) -> RpcError {
    let method = kind.method();
    match answer.error_parts() {
        Some((code, text)) => RpcError::new(code, text.chars().take(500).collect::<String>()),
        None => RpcError::new(
            INTERNAL_ERROR,
            format!("invalid response of `{server}` to `{method}`: not a list"),
        ),
    }
}
