//! Presents all servers as one MCP server.
//!
//! Routes a request by the server name in the tool, prompt or URI, and merges the lists of all servers. A
//! server that cannot be listed is reported in `_meta` of the list.

pub(crate) mod list_cache;
pub(crate) mod list_changes;
pub(crate) mod lists;
pub(crate) mod names;
pub(crate) mod rewrite;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::McpServerName;
use futures_util::future::{BoxFuture, join_all};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::gateway::aggregate::list_cache::{List, ListCache};
use crate::gateway::aggregate::lists::Kind;
use crate::gateway::aggregate::names::{
    aggregate_name, original, server_part, split_name, split_uri,
};
use crate::gateway::aggregate::rewrite::{rewrite_item, rewrite_result};
use crate::gateway::error::{INVALID_PARAMS, RpcError, shortened};
use crate::gateway::json::{object, raw};
use crate::gateway::params;
use crate::gateway::server_registry::{HostedServer, ServerRegistry, ServerState};
use crate::wire::{Message, Object};

/// Timeout for the complete list of one server.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a list request waits for the start of an idle server.
const START_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_ITEMS: usize = 10_000;
const MAX_BYTES: usize = 32 << 20;
/// `_meta` key of a list: the servers missing in it, with the reason.
pub(crate) const UNAVAILABLE: &str = "io.boxwood/unavailable";

pub(crate) const INSTRUCTIONS: &str = "Several MCP servers in one. A tool or prompt is called `server__name`, a resource's URI is `mcp://server/` followed by the server's own URI.";

/// Calls one server, with the protocol version of the client.
pub(crate) trait ServerCaller: Send + Sync {
    /// `params` use the server's own names. Applies the tool filter.
    fn call<'a>(
        &'a self,
        hosted: Arc<dyn HostedServer>,
        method: &'a str,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'a, Result<Message, RpcError>>;
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Aggregate {
    pub(crate) registry: Arc<dyn ServerRegistry>,
    list_cache: ListCache,
}

impl Aggregate {
    pub(crate) fn new(registry: Arc<dyn ServerRegistry>) -> Self {
        Self {
            registry,
            list_cache: ListCache::default(),
        }
    }

    pub(crate) async fn request(
        &self,
        caller: &dyn ServerCaller,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<Message, RpcError> {
        let params = params::parsed(params, "params")?;
        if let Some(kind) = Kind::of(method) {
            return self.list(caller, kind, &params).await;
        }
        let (hosted, params) = self.routed(caller, method, params).await?;
        let name = hosted.name().clone();
        let answer = caller.call(hosted, method, Some(params.raw())).await?;
        Ok(rewrite_result(&name, method, answer))
    }

    /// Returns the addressed server and the parameters with the server's own names.
    async fn routed(
        &self,
        caller: &dyn ServerCaller,
        method: &str,
        mut params: Object,
    ) -> Result<(Arc<dyn HostedServer>, Object), RpcError> {
        let meta = params::meta_alone(&params);
        let hosted = match method {
            "tools/call" => {
                self.by_name(caller, Kind::Tools, &mut params, &meta)
                    .await?
            }
            "prompts/get" => {
                self.by_name(caller, Kind::Prompts, &mut params, &meta)
                    .await?
            }
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
                self.by_uri(&mut params).await?
            }
            "completion/complete" => {
                let reference = params.get("ref").and_then(object);
                let mut reference = reference
                    .ok_or_else(|| RpcError::new(INVALID_PARAMS, "`ref` must be an object"))?;
                let hosted = if reference.get("uri").is_some() {
                    self.by_uri(&mut reference).await?
                } else {
                    self.by_name(caller, Kind::Prompts, &mut reference, &meta)
                        .await?
                };
                params.set("ref", reference.raw());
                hosted
            }
            _ => return Err(RpcError::method_not_found(method)),
        };
        Ok((hosted, params))
    }

    /// Replaces the aggregate `name` by the server's own. `meta` is sent if the list of the server has to be
    /// requested for that: modern servers require it.
    async fn by_name(
        &self,
        caller: &dyn ServerCaller,
        kind: Kind,
        params: &mut Object,
        meta: &Object,
    ) -> Result<Arc<dyn HostedServer>, RpcError> {
        let name = params.text("name").unwrap_or_default();
        let unknown = || match kind {
            Kind::Tools => RpcError::unknown_tool(&name),
            _ => RpcError::new(
                INVALID_PARAMS,
                format!("Unknown prompt: {}", shortened(&name)),
            ),
        };
        let (part, rest) = split_name(&name).ok_or_else(unknown)?;
        let names = self.registry.names();
        let server = names
            .iter()
            .find(|server| server_part(server) == part)
            .ok_or_else(unknown)?;
        let hosted = self.registry.server(server).await?;
        if let Some(original) = original(rest) {
            params.set("name", raw(original));
            return Ok(hosted);
        }
        let listed = full_list(caller, &hosted, kind, meta).await?;
        let originals = listed.iter().filter_map(|item| object(item)?.text("name"));
        let original = originals
            .into_iter()
            .find(|original| aggregate_name(server, original) == name);
        params.set("name", raw(&original.ok_or_else(unknown)?));
        Ok(hosted)
    }

    /// Replaces `uri` by the server's own.
    async fn by_uri(&self, params: &mut Object) -> Result<Arc<dyn HostedServer>, RpcError> {
        let uri = params.text("uri").unwrap_or_default();
        let unknown = || {
            RpcError::new(
                INVALID_PARAMS,
                format!("Unknown resource: {}", shortened(&uri)),
            )
        };
        let (server, original) = split_uri(&uri).ok_or_else(unknown)?;
        if !self.registry.names().contains(&server) {
            return Err(unknown());
        }
        params.set("uri", raw(original));
        Ok(self.registry.server(&server).await?)
    }

    /// Merges the lists of all servers.
    async fn list(
        &self,
        caller: &dyn ServerCaller,
        kind: Kind,
        params: &Object,
    ) -> Result<Message, RpcError> {
        if params
            .get("cursor")
            .is_some_and(|cursor| cursor.get() != "null")
        {
            let text = "invalid cursor: this list has a single page";
            return Err(RpcError::new(INVALID_PARAMS, text));
        }
        let names = self.registry.names();
        let lists = names
            .iter()
            .map(|name| self.listed(caller, kind, params, &names, name));
        let lists = join_all(lists).await;
        Ok(merged(kind, names.iter().zip(lists)))
    }

    /// The list of one server, or why it is missing.
    async fn listed(
        &self,
        caller: &dyn ServerCaller,
        kind: Kind,
        params: &Object,
        names: &[McpServerName],
        name: &McpServerName,
    ) -> Result<List, String> {
        let status = self.registry.status(name);
        let defined_at = status.defined_at;
        if matches!(status.state, ServerState::Idle | ServerState::Starting)
            && let Some(list) = self.list_cache.find(name, defined_at, kind)
        {
            return Ok(list);
        }
        let hosted = match self.registry.connected(name) {
            Some(hosted) => hosted,
            None => match timeout(START_TIMEOUT, self.registry.server(name)).await {
                Ok(Ok(hosted)) => hosted,
                Ok(Err(error)) => return Err(error.to_string()),
                Err(_) => return Err("server is still starting".to_owned()),
            },
        };
        let list: List = if hosted.handshake().has(kind.capability()) {
            match timeout(LIST_TIMEOUT, full_list(caller, &hosted, kind, params)).await {
                Ok(Ok(items)) => items.into(),
                // Many servers with resources do not implement templates.
                Ok(Err(_)) if kind == Kind::Templates => List::default(),
                Ok(Err(error)) => return Err(error.message),
                Err(_) => {
                    let seconds = LIST_TIMEOUT.as_secs();
                    return Err(format!(
                        "no response to the list request within {seconds} s"
                    ));
                }
            }
        } else {
            List::default()
        };
        self.list_cache.insert(names, name, defined_at, kind, &list);
        Ok(list)
    }
}

/// All pages of a list.
async fn full_list(
    caller: &dyn ServerCaller,
    hosted: &Arc<dyn HostedServer>,
    kind: Kind,
    params: &Object,
) -> Result<Vec<Box<RawValue>>, RpcError> {
    let page = |params| caller.call(Arc::clone(hosted), kind.method(), params);
    lists::all_items(kind, hosted.name(), params, &page).await
}

type Listed<'a> = (&'a McpServerName, Result<List, String>);

/// Ordered by server name, so that the result is stable.
fn merged<'a>(kind: Kind, lists: impl Iterator<Item = Listed<'a>>) -> Message {
    let mut all: Vec<Box<RawValue>> = Vec::new();
    let mut bytes = 0;
    let mut unavailable: Vec<Value> = Vec::new();
    let mut seen = HashSet::new();
    for (server, list) in lists {
        let list = match list {
            Ok(list) => list,
            Err(message) => {
                unavailable
                    .push(json!({ "server": server.as_str(), "message": shortened(&message) }));
                continue;
            }
        };
        for item in list.iter() {
            let Some((name, item)) = rewrite_item(server, kind, item) else {
                continue;
            };
            bytes += item.get().len();
            if all.len() >= MAX_ITEMS || bytes > MAX_BYTES {
                let message = "the aggregate list is full; use the server's own endpoint";
                unavailable.push(json!({ "server": server.as_str(), "message": message }));
                break;
            }
            // Skip duplicate names.
            if seen.insert(name) {
                all.push(item);
            }
        }
    }
    let mut result = Object::of([(kind.key(), raw(&all))]);
    if !unavailable.is_empty() {
        result.set("_meta", raw(&json!({ UNAVAILABLE: unavailable })));
    }
    Message::result(Box::default(), result.raw())
}

/// Capabilities of the aggregate.
pub(crate) fn capabilities() -> Value {
    json!({
        "tools": { "listChanged": true },
        "prompts": { "listChanged": true },
        "resources": { "listChanged": true, "subscribe": true },
        "completions": {},
    })
}

pub(crate) fn server_info() -> Box<RawValue> {
    raw(&json!({ "name": "boxwood", "version": env!("CARGO_PKG_VERSION") }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> McpServerName {
        McpServerName::new(name).expect("a legal name")
    }

    fn value(message: &Message) -> Value {
        serde_json::from_str(message.outcome().expect("a result").get()).expect("JSON")
    }

    #[test]
    fn lists_are_merged_and_missing_servers_are_reported() {
        let (one, two, failed) = (named("one"), named("two"), named("zzz"));
        let tools = |names: &[&str]| -> List {
            names
                .iter()
                .map(|name| raw(&json!({"name": name, "new": 1})))
                .collect()
        };
        let lists = [
            (&one, Ok(tools(&["a", "a"]))),
            (&two, Ok(tools(&["a"]))),
            (&failed, Err("it is gone".to_owned())),
        ];
        assert_eq!(
            value(&merged(Kind::Tools, lists.into_iter())),
            json!({
                "tools": [{"name": "one__a", "new": 1}, {"name": "two__a", "new": 1}],
                "_meta": {UNAVAILABLE: [{"server": "zzz", "message": "it is gone"}]},
            })
        );
    }
}
