//! All servers as one.
//!
//! Comes in: requests that name a thing of some server, and requests for lists. Goes out: the request for
//! that one server in its own words, and the answer in ours; lists of all servers together. A server that
//! is not there is told of beside the list and spoils nothing. Never here: how one server is asked.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::McpServerName;
use futures_util::future::{BoxFuture, join_all};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::behind::{Behind, House, How};
use super::json::{object, raw};
use super::lists::{self, Kind};
use super::names::{Shown, shown, split_uri};
use super::outward::{outward, outward_item};
use super::params;
use super::refusal::{INVALID_PARAMS, Refusal};
use super::remembered::{List, Remembered};
use crate::wire::{Message, Object};

/// For the whole list of one server.
const LISTING: Duration = Duration::from_secs(10);
/// For a server that is not connected: one that rests may come.
const COMING: Duration = Duration::from_secs(2);
const MOST_ITEMS: usize = 10_000;
const MOST_BYTES: usize = 32 << 20;
/// Beside a list: which servers are missing in it, and why.
pub(crate) const UNAVAILABLE: &str = "io.boxwood/unavailable";

pub(crate) const INSTRUCTIONS: &str = "Several MCP servers in one. A tool or prompt is called `server__name`, a resource's URI is `mcp://server/` followed by the server's own URI.";

/// How one server is asked, in either era.
pub(crate) trait Asking: Send + Sync {
    /// `params` are in the server's own words. The tool filter is applied here.
    fn ask<'a>(
        &'a self,
        behind: Arc<dyn Behind>,
        method: &'a str,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'a, Result<Message, Refusal>>;
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Aggregate {
    house: Arc<dyn House>,
    remembered: Remembered,
}

impl Aggregate {
    pub(crate) fn new(house: Arc<dyn House>) -> Self {
        Self {
            house,
            remembered: Remembered::default(),
        }
    }

    pub(crate) fn house(&self) -> &Arc<dyn House> {
        &self.house
    }

    pub(crate) fn remembered(&self) -> &Remembered {
        &self.remembered
    }

    /// Whose thing a request is about, as far as its name tells.
    pub(crate) fn server_of(&self, request: &Message) -> Option<McpServerName> {
        let params = request.params().and_then(object)?;
        let params = match request.method()? {
            "completion/complete" => params.get("ref").and_then(object)?,
            _ => params,
        };
        let Some(name) = params.text("name") else {
            let uri = params.text("uri")?;
            return split_uri(&uri).map(|(server, _)| server);
        };
        let split = Shown::split(&name)?;
        self.house.names().into_iter().find(|it| split.is_of(it))
    }

    pub(crate) async fn request(
        &self,
        asking: &dyn Asking,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<Message, Refusal> {
        let params = match params {
            None => Object::default(),
            Some(params) => Object::parse(params.get())
                .map_err(|bad| Refusal::malformed(format!("`params` is {bad}")))?,
        };
        if let Some(kind) = Kind::of(method) {
            return self.list(asking, kind, &params).await;
        }
        let (behind, params) = self.routed(asking, method, params).await?;
        let name = behind.name().clone();
        let answer = asking.ask(behind, method, Some(params.raw())).await?;
        Ok(outward(&name, method, answer))
    }

    /// The server that a request is for, and the request in its words.
    async fn routed(
        &self,
        asking: &dyn Asking,
        method: &str,
        mut params: Object,
    ) -> Result<(Arc<dyn Behind>, Object), Refusal> {
        let meta = params::meta_alone(&params);
        match method {
            "tools/call" => {
                let (behind, name) = self.named(asking, Kind::Tools, &params, &meta).await?;
                params.set("name", raw(&name));
                Ok((behind, params))
            }
            "prompts/get" => {
                let (behind, name) = self.named(asking, Kind::Prompts, &params, &meta).await?;
                params.set("name", raw(&name));
                Ok((behind, params))
            }
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
                let (behind, uri) = self.placed(&params).await?;
                params.set("uri", raw(&uri));
                Ok((behind, params))
            }
            "completion/complete" => {
                let of = params.get("ref").and_then(object);
                let mut of =
                    of.ok_or_else(|| Refusal::new(INVALID_PARAMS, "`ref` must be an object"))?;
                let behind = if of.get("uri").is_some() {
                    let (behind, uri) = self.placed(&of).await?;
                    of.set("uri", raw(&uri));
                    behind
                } else {
                    let (behind, name) = self.named(asking, Kind::Prompts, &of, &meta).await?;
                    of.set("name", raw(&name));
                    behind
                };
                params.set("ref", of.raw());
                Ok((behind, params))
            }
            _ => Err(Refusal::no_method(method)),
        }
    }

    /// `meta` goes with what has to be asked for it: a server of the stateless era answers nothing without.
    async fn named(
        &self,
        asking: &dyn Asking,
        kind: Kind,
        params: &Object,
        meta: &Object,
    ) -> Result<(Arc<dyn Behind>, String), Refusal> {
        let name = params.text("name").unwrap_or_default();
        let unknown = || match kind {
            Kind::Tools => Refusal::no_tool(&name),
            _ => Refusal::new(INVALID_PARAMS, format!("Unknown prompt: {}", cut(&name))),
        };
        let split = Shown::split(&name).ok_or_else(unknown)?;
        let names = self.house.names();
        let server = names
            .iter()
            .find(|server| split.is_of(server))
            .ok_or_else(unknown)?;
        let behind = self.server(server).await?;
        if let Some(original) = split.original() {
            return Ok((behind, original.to_owned()));
        }
        let listed = whole(asking, &behind, kind, meta).await?;
        let originals = listed.iter().filter_map(|item| object(item)?.text("name"));
        let original = originals
            .into_iter()
            .find(|original| shown(server, original) == name);
        Ok((behind, original.ok_or_else(unknown)?))
    }

    async fn placed(&self, params: &Object) -> Result<(Arc<dyn Behind>, String), Refusal> {
        let uri = params.text("uri").unwrap_or_default();
        let unknown = || Refusal::new(INVALID_PARAMS, format!("Unknown resource: {}", cut(&uri)));
        let (server, original) = split_uri(&uri).ok_or_else(unknown)?;
        if !self.house.names().contains(&server) {
            return Err(unknown());
        }
        let behind = self.server(&server).await?;
        Ok((behind, original.to_owned()))
    }

    async fn server(&self, name: &McpServerName) -> Result<Arc<dyn Behind>, Refusal> {
        self.house
            .server(name)
            .await
            .map_err(|error| Refusal::from(&error))
    }

    async fn list(
        &self,
        asking: &dyn Asking,
        kind: Kind,
        params: &Object,
    ) -> Result<Message, Refusal> {
        if params
            .get("cursor")
            .is_some_and(|cursor| cursor.get() != "null")
        {
            let text = "there is no such page: this list comes whole, without a cursor";
            return Err(Refusal::new(INVALID_PARAMS, text));
        }
        let names = self.house.names();
        let lists = names
            .iter()
            .map(|name| self.listed(asking, kind, params, &names, name));
        let lists = join_all(lists).await;
        Ok(merged(kind, names.iter().zip(lists)))
    }

    async fn listed(
        &self,
        asking: &dyn Asking,
        kind: Kind,
        params: &Object,
        names: &[McpServerName],
        name: &McpServerName,
    ) -> Result<List, String> {
        let standing = self.house.standing(name);
        let edition = standing.edition;
        if matches!(standing.how, How::Resting | How::Coming)
            && let Some(list) = self.remembered.find(name, edition, kind)
        {
            return Ok(list);
        }
        let behind = match self.house.connected(name) {
            Some(behind) => behind,
            None => match timeout(COMING, self.house.server(name)).await {
                Ok(Ok(behind)) => behind,
                Ok(Err(error)) => return Err(error.to_string()),
                Err(_) => return Err("it is still starting".to_owned()),
            },
        };
        let list: List = if behind.greeting().has(kind.capability()) {
            match timeout(LISTING, whole(asking, &behind, kind, params)).await {
                Ok(Ok(items)) => items.into(),
                // Many servers that have resources know no templates.
                Ok(Err(_)) if kind == Kind::Templates => List::default(),
                Ok(Err(refusal)) => return Err(refusal.message),
                Err(_) => {
                    let seconds = LISTING.as_secs();
                    return Err(format!("it did not list anything within {seconds} s"));
                }
            }
        } else {
            List::default()
        };
        self.remembered.keep(names, name, edition, kind, &list);
        Ok(list)
    }
}

async fn whole(
    asking: &dyn Asking,
    behind: &Arc<dyn Behind>,
    kind: Kind,
    params: &Object,
) -> Result<Vec<Box<RawValue>>, Refusal> {
    let page = |params| asking.ask(Arc::clone(behind), kind.method(), params);
    lists::drained(kind, behind.name(), params, &page).await
}

fn cut(text: &str) -> String {
    text.chars().take(120).collect()
}

type Listed<'a> = (&'a McpServerName, Result<List, String>);

/// In the order of the servers' names, so that it is the same every time.
fn merged<'a>(kind: Kind, lists: impl Iterator<Item = Listed<'a>>) -> Message {
    let mut all: Vec<Box<RawValue>> = Vec::new();
    let mut bytes = 0;
    let mut unavailable: Vec<Value> = Vec::new();
    let mut seen = HashSet::new();
    for (server, list) in lists {
        let list = match list {
            Ok(list) => list,
            Err(why) => {
                unavailable.push(json!({ "server": server.as_str(), "message": cut(&why) }));
                continue;
            }
        };
        for item in list.iter() {
            let Some((name, item)) = outward_item(server, kind, item) else {
                continue;
            };
            bytes += item.get().len();
            if all.len() >= MOST_ITEMS || bytes > MOST_BYTES {
                let why = "the list of all servers is full; use the server's own address";
                unavailable.push(json!({ "server": server.as_str(), "message": why }));
                break;
            }
            // A server that lists a name twice shows one thing.
            if seen.insert(name) {
                all.push(item);
            }
        }
    }
    let mut result = Object::default();
    result.set(kind.key(), raw(&all));
    if !unavailable.is_empty() {
        result.set("_meta", raw(&json!({ UNAVAILABLE: unavailable })));
    }
    Message::result(Box::default(), result.raw())
}

/// What all of them together can do.
pub(crate) fn capabilities() -> Value {
    json!({
        "tools": { "listChanged": true },
        "prompts": { "listChanged": true },
        "resources": { "listChanged": true, "subscribe": true },
        "completions": {},
    })
}

pub(crate) fn server_info() -> Value {
    json!({ "name": "boxwood", "version": env!("CARGO_PKG_VERSION") })
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
    fn lists_come_together_and_a_missing_server_is_told_of() {
        let (one, two, gone) = (named("one"), named("two"), named("zzz"));
        let tools = |names: &[&str]| -> List {
            names
                .iter()
                .map(|name| raw(&json!({"name": name, "new": 1})))
                .collect()
        };
        let lists = [
            (&one, Ok(tools(&["a", "a"]))),
            (&two, Ok(tools(&["a"]))),
            (&gone, Err("it is gone".to_owned())),
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
