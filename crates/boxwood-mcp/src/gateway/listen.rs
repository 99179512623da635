//! `subscriptions/listen`: a stream of news that stays open.
//!
//! Comes in: what a client wants to hear of. Goes out: first what it will hear of, then each piece of news
//! with the name of the subscription. A server of the stateless era does it by itself; for others the hub
//! listens; for all servers together both, and their coming and going is news too.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::McpServerName;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::aggregate::Aggregate;
use super::behind::{Behind, House};
use super::envelope::{Asked, SUBSCRIPTION};
use super::hub::Hubs;
use super::json::{first_of, object, raw};
use super::names::split_uri;
use super::outward::outward_news;
use super::presence::Presence;
use super::refusal::{INTERNAL_ERROR, INVALID_PARAMS, Refusal};
use super::wishes::MOST_URI_BYTES;
use crate::wire::{Ask, Connection, Era, Message, Object, Principal};

pub(crate) const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const UPDATED: &str = "notifications/resources/updated";
const MOST_URIS: usize = 1000;
const QUEUE: usize = 64;
/// Servers start one after the other; their clients hear of it once.
const SETTLING: Duration = Duration::from_millis(300);

/// The lists that change, as filters and capabilities name them and as the news are called.
const LISTS: [(&str, &str, &str); 3] = [
    (
        "toolsListChanged",
        "tools",
        "notifications/tools/list_changed",
    ),
    (
        "promptsListChanged",
        "prompts",
        "notifications/prompts/list_changed",
    ),
    (
        "resourcesListChanged",
        "resources",
        "notifications/resources/list_changed",
    ),
];

/// What a client wants to hear of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    lists: [bool; 3],
    uris: Vec<String>,
}

impl Wanted {
    pub(crate) fn of(params: &Object) -> Result<Self, Refusal> {
        let wanted = params.get("notifications").and_then(object);
        let wanted =
            wanted.ok_or_else(|| Refusal::malformed("`notifications` must be an object"))?;
        let lists = LISTS.map(|(key, _, _)| wanted.get(key).is_some_and(|yes| yes.get() == "true"));
        let uris = match wanted.get("resourceSubscriptions") {
            None => Vec::new(),
            Some(uris) => first_of::<String>(uris, MOST_URIS + 1).ok_or_else(|| {
                Refusal::malformed("`notifications.resourceSubscriptions` must be a list of URIs")
            })?,
        };
        if uris.len() > MOST_URIS {
            return Err(Refusal::malformed(format!(
                "at most {MOST_URIS} resources at once"
            )));
        }
        if uris.iter().map(String::len).sum::<usize>() > MOST_URI_BYTES {
            return Err(Refusal::malformed(format!(
                "the URIs of all resources together have more than {MOST_URI_BYTES} bytes"
            )));
        }
        Ok(Self { lists, uris })
    }

    fn wants(&self, message: &Message) -> bool {
        let Some(method) = message.method() else {
            return false;
        };
        // The hub has told apart whose resources they are.
        (method == UPDATED && !self.uris.is_empty())
            || LISTS
                .iter()
                .zip(self.lists)
                .any(|((_, _, news), wanted)| wanted && *news == method)
    }

    /// As filters are written.
    fn notifications(&self) -> Object {
        let mut notifications = Object::default();
        for ((key, _, _), wanted) in LISTS.iter().zip(self.lists) {
            if wanted {
                notifications.set(key, raw(&true));
            }
        }
        if !self.uris.is_empty() {
            notifications.set("resourceSubscriptions", raw(&self.uris));
        }
        notifications
    }

    fn acknowledged(&self, id: &RawValue) -> Message {
        let mut params = Object::default();
        params.set("notifications", self.notifications().raw());
        tagged(&Message::notification(ACKNOWLEDGED, Some(params.raw())), id)
    }

    /// What of it one of many servers has.
    fn of_server(&self, server: &McpServerName) -> Self {
        let own = self.uris.iter().filter_map(|uri| {
            let (of, original) = split_uri(uri)?;
            (of == *server).then(|| original.to_owned())
        });
        Self {
            lists: self.lists,
            uris: own.collect(),
        }
    }
}

/// News with the name of the subscription they belong to.
fn tagged(message: &Message, id: &RawValue) -> Message {
    let mut params = message.params().and_then(object).unwrap_or_default();
    let mut meta = params.get("_meta").and_then(object).unwrap_or_default();
    meta.set(SUBSCRIPTION, id.to_owned());
    params.set("_meta", meta.raw());
    message.clone().with_params(Some(params.raw()))
}

fn ended(id: &RawValue) -> Message {
    let mut meta = Object::default();
    meta.set(SUBSCRIPTION, id.to_owned());
    let mut result = Object::default();
    result.set("resultType", raw("complete"));
    result.set("_meta", meta.raw());
    Message::result(id.to_owned(), result.raw())
}

/// Who listens, and where. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Listening {
    pub(crate) house: Arc<dyn House>,
    pub(crate) hubs: Arc<Hubs>,
    pub(crate) asked: Arc<Asked>,
    pub(crate) principal: Principal,
}

/// Those of all servers that are listened to, each by the number of its process.
type Watchers = HashMap<(McpServerName, u64), AbortOnDropHandle<()>>;

impl Listening {
    /// On one server of the era before. Goes on until the client leaves or the server is taken away.
    pub(crate) async fn through_hub(
        &self,
        behind: &Arc<dyn Behind>,
        wanted: Wanted,
        news: &mpsc::Sender<Message>,
    ) -> Result<Message, Refusal> {
        let id = &self.asked.id;
        let name = behind.name().clone();
        let mut honoured = offered(wanted, behind);
        let hub = self.hubs.of(&name);
        let (member, mut heard) = hub.listen(self.principal.clone());
        let uris = std::mem::take(&mut honoured.uris);
        for uri in uris {
            match member.subscribe(&uri).await {
                Ok(answer) if answer.error().is_none() => honoured.uris.push(uri),
                Ok(_) => {}
                // This one is too long, or one too many.
                Err(refusal) if refusal.code == INVALID_PARAMS => {}
                // It would leave the next unanswered too, and others wait for their turn meanwhile.
                Err(_) => break,
            }
        }
        hub.hears(&behind.main()).await;
        say(news, honoured.acknowledged(id)).await?;
        let mut changes = self.house.changes();
        loop {
            tokio::select! {
                message = heard.recv() => match message {
                    Some(message) if honoured.wants(&message) => {
                        say(news, tagged(&message, id)).await?;
                    }
                    Some(_) => {}
                    None => return Ok(ended(id)),
                },
                changed = changes.changed() => {
                    if changed.is_err() || !self.house.names().contains(&name) {
                        return Ok(ended(id));
                    }
                }
            }
        }
    }

    /// On all servers. Goes on until the client leaves.
    pub(crate) async fn on_all(
        &self,
        all: &Aggregate,
        wanted: Wanted,
        news: &mpsc::Sender<Message>,
    ) -> Result<Message, Refusal> {
        let id = &self.asked.id;
        let names = self.house.names();
        let mut honoured = wanted.clone();
        honoured
            .uris
            .retain(|uri| split_uri(uri).is_some_and(|(server, _)| names.contains(&server)));
        say(news, honoured.acknowledged(id)).await?;
        let mut changes = self.house.changes();
        let mut presence = Presence::default();
        presence.look(all);
        let (sender, mut heard) = mpsc::channel(QUEUE);
        let mut watchers = Watchers::new();
        self.watch(&mut watchers, &wanted, &sender);
        loop {
            tokio::select! {
                Some((server, message)) = heard.recv() => {
                    if message.method() != Some(ACKNOWLEDGED) {
                        say(news, tagged(&outward_news(&server, &message), id)).await?;
                    }
                }
                changed = changes.changed() => {
                    if changed.is_err() {
                        return Ok(ended(id));
                    }
                    sleep(SETTLING).await;
                    changes.borrow_and_update();
                    self.watch(&mut watchers, &wanted, &sender);
                    if !presence.look(all) {
                        continue;
                    }
                    for ((_, _, method), is_wanted) in LISTS.iter().zip(wanted.lists) {
                        if is_wanted {
                            say(news, tagged(&Message::notification(method, None), id)).await?;
                        }
                    }
                }
            }
        }
    }

    /// Those that have come are listened to, those that have gone no longer; the others notice nothing.
    fn watch(
        &self,
        watchers: &mut Watchers,
        wanted: &Wanted,
        to: &mpsc::Sender<(McpServerName, Message)>,
    ) {
        let names = self.house.names();
        let mut before = std::mem::take(watchers);
        for behind in names.iter().filter_map(|name| self.house.connected(name)) {
            let name = behind.name().clone();
            let key = (name, behind.main().id());
            let watcher = before.remove(&key).unwrap_or_else(|| {
                let wanted = wanted.of_server(&key.0);
                // A task each: one that begins to listen holds what others wait for, and goes on while this
                // client does not read.
                let watched = self.clone().watched(behind, wanted, to.clone());
                AbortOnDropHandle::new(tokio::spawn(watched))
            });
            watchers.insert(key, watcher);
        }
    }

    /// One of all. That somebody listens to everything keeps no server awake.
    async fn watched(
        self,
        behind: Arc<dyn Behind>,
        wanted: Wanted,
        to: mpsc::Sender<(McpServerName, Message)>,
    ) {
        let (sender, mut heard) = mpsc::channel(QUEUE);
        let name = behind.name().clone();
        let listening = async move {
            if let Ok(Some((connection, _))) = super::modern::stateless(&behind).await {
                let mut params = self.asked.params.clone();
                params.set("notifications", wanted.notifications().raw());
                let how = Ask {
                    progress: Some(sender.clone()),
                    caller: Some(self.asked.id.clone()),
                    is_ours: true,
                    ..Ask::default()
                };
                let ended = by_itself(&behind, &connection, &self.asked, &params, how).await;
                if ended.is_ok() || behind.greeting().era == Era::Modern {
                    return;
                }
                // Nobody called that process for long, so it was stopped; the one that all share goes on.
            }
            // A server that cannot tell news has none.
            drop(self.through_hub(&behind, wanted, &sender).await);
        };
        let passing = async {
            while let Some(message) = heard.recv().await {
                if to.send((name.clone(), message)).await.is_err() {
                    return;
                }
            }
        };
        tokio::join!(listening, passing);
    }
}

async fn say(news: &mpsc::Sender<Message>, message: Message) -> Result<(), Refusal> {
    let said = news.send(message).await;
    said.map_err(|_| Refusal::new(INTERNAL_ERROR, "the client has left"))
}

/// Without what the server has not offered.
fn offered(mut wanted: Wanted, behind: &Arc<dyn Behind>) -> Wanted {
    let greeting = behind.greeting();
    let capabilities = object(&greeting.capabilities).unwrap_or_default();
    let has = |capability: &str, what: &str| {
        let named = capabilities.get(capability).and_then(object);
        named.is_some_and(|named| named.get(what).is_some_and(|yes| yes.get() == "true"))
    };
    for (at, (_, capability, _)) in LISTS.iter().enumerate() {
        wanted.lists[at] &= has(capability, "listChanged");
    }
    if !has("resources", "subscribe") {
        wanted.uris.clear();
    }
    wanted
}

/// On one server of the stateless era, which does it by itself. Its answer comes when it has ended.
pub(crate) async fn by_itself(
    behind: &Arc<dyn Behind>,
    connection: &Connection,
    asked: &Asked,
    params: &Object,
    how: Ask,
) -> Result<Message, Refusal> {
    let request = asked.request.clone().with_params(Some(params.raw()));
    let answer = connection.relay(request, how).await;
    answer.map_err(|error| Refusal::unanswered(&error, behind.name()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn wishes_are_read_and_written() {
        let params = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": false,
            "resourceSubscriptions": ["mcp://a/x:y", "mcp://b/z:z"]}});
        let params = Object::parse(&params.to_string()).expect("an object");
        let wanted = Wanted::of(&params).expect("wishes");
        assert_eq!(wanted.lists, [true, false, false]);
        let name = McpServerName::new("a").expect("a legal name");
        assert_eq!(wanted.of_server(&name).uris, ["x:y"]);
        let tools = Message::notification("notifications/tools/list_changed", None);
        let prompts = Message::notification("notifications/prompts/list_changed", None);
        let log = Message::notification("notifications/message", None);
        assert!(wanted.wants(&tools) && !wanted.wants(&prompts) && !wanted.wants(&log));
        let id = raw("sub");
        let news = tagged(&tools, &id)
            .params()
            .map(|params| params.get().to_owned());
        assert_eq!(
            news.as_deref(),
            Some(r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":"sub"}}"#)
        );
        assert!(Wanted::of(&Object::default()).is_err());
        let named = |bytes: usize| {
            let params = json!({"notifications": {"resourceSubscriptions": ["x".repeat(bytes)]}});
            Object::parse(&params.to_string()).expect("an object")
        };
        let many = |count: usize| {
            let params = json!({"notifications": {"resourceSubscriptions": vec!["x:y"; count]}});
            Object::parse(&params.to_string()).expect("an object")
        };
        assert!(Wanted::of(&many(MOST_URIS)).is_ok());
        assert!(Wanted::of(&many(MOST_URIS + 1)).is_err());
        assert!(Wanted::of(&named(MOST_URI_BYTES)).is_ok());
        assert!(Wanted::of(&named(MOST_URI_BYTES + 1)).is_err());
    }
}
