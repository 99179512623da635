//! `subscriptions/listen`: a stream of notifications.
//!
//! The first message acknowledges what is subscribed. Modern servers implement it themselves; for legacy
//! servers it uses the notification hub. A stream of all servers also reports added and removed servers as
//! list changes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::McpServerName;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::gateway::aggregate::list_changes::ListChanges;
use crate::gateway::aggregate::names::split_uri;
use crate::gateway::aggregate::rewrite::rewrite_notification;
use crate::gateway::error::{INTERNAL_ERROR, RpcError};
use crate::gateway::json::{first_of, object, raw};
use crate::gateway::modern::RequestHandler;
use crate::gateway::notifications::preferences::{
    MAX_SUBSCRIPTIONS, MAX_TOTAL_URI_BYTES, MAX_URI_BYTES, Preference,
};
use crate::gateway::notifications::subscriptions::{RESOURCE_UPDATED, list_changed};
use crate::gateway::server_registry::{HostedServer, relay};
use crate::protocol_versions::SUBSCRIPTION;
use crate::wire::{CallOptions, Message, Object, Protocol};

pub(crate) const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const QUEUE: usize = 64;
/// Collects changes of several servers that start one after the other.
const DEBOUNCE: Duration = Duration::from_millis(300);

/// Capability of each list.
const LISTS: [&str; 3] = ["tools", "prompts", "resources"];

/// Key of a list in a filter.
fn filter_key(list: &str) -> String {
    format!("{list}ListChanged")
}

/// The notifications that a client requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListenFilter {
    lists: Vec<&'static str>,
    uris: Vec<String>,
}

impl ListenFilter {
    pub(crate) fn of(params: &Object) -> Result<Self, RpcError> {
        let notifications = params.get("notifications").and_then(object);
        let notifications = notifications
            .ok_or_else(|| RpcError::malformed("`notifications` must be an object"))?;
        let is_true = |key: &str| {
            notifications
                .get(key)
                .is_some_and(|value| value.get() == "true")
        };
        let lists = LISTS.into_iter().filter(|list| is_true(&filter_key(list)));
        let lists = lists.collect();
        let uris = match notifications.get("resourceSubscriptions") {
            None => Vec::new(),
            Some(uris) => first_of::<String>(uris, MAX_SUBSCRIPTIONS + 1).ok_or_else(|| {
                RpcError::malformed("`notifications.resourceSubscriptions` must be a list of URIs")
            })?,
        };
        if uris.len() > MAX_SUBSCRIPTIONS {
            return Err(RpcError::malformed(format!(
                "`notifications.resourceSubscriptions` has more than {MAX_SUBSCRIPTIONS} URIs"
            )));
        }
        if uris.iter().map(String::len).sum::<usize>() > MAX_TOTAL_URI_BYTES {
            return Err(RpcError::malformed(format!(
                "`notifications.resourceSubscriptions` exceeds {MAX_TOTAL_URI_BYTES} bytes in total"
            )));
        }
        Ok(Self { lists, uris })
    }

    fn matches(&self, message: &Message) -> bool {
        let Some(method) = message.method() else {
            return false;
        };
        // The hub only delivers subscribed resources.
        (method == RESOURCE_UPDATED && !self.uris.is_empty())
            || self.list_changes().any(|change| change == method)
    }

    /// The methods of the requested notifications about lists.
    fn list_changes(&self) -> impl Iterator<Item = String> {
        self.lists.iter().copied().map(list_changed)
    }

    /// As in the request.
    fn notifications(&self) -> Object {
        let mut notifications = Object::default();
        for list in &self.lists {
            notifications.set(&filter_key(list), raw(&true));
        }
        if !self.uris.is_empty() {
            notifications.set("resourceSubscriptions", raw(&self.uris));
        }
        notifications
    }

    fn acknowledged(&self, id: &RawValue) -> Message {
        let params = Object::of([("notifications", self.notifications().raw())]);
        tagged(&Message::notification(ACKNOWLEDGED, Some(params.raw())), id)
    }

    /// The part of the filter for one server.
    fn of_server(&self, server: &McpServerName) -> Self {
        let own = self.uris.iter().filter_map(|uri| {
            let (owner, original) = split_uri(uri)?;
            (owner == *server).then(|| original.to_owned())
        });
        Self {
            lists: self.lists.clone(),
            uris: own.collect(),
        }
    }
}

/// Adds the subscription id.
fn tagged(message: &Message, id: &RawValue) -> Message {
    let params = message.params().and_then(object).unwrap_or_default();
    let params = params.with_meta(SUBSCRIPTION, id.to_owned());
    message.clone().with_params(Some(params.raw()))
}

fn completed(id: &RawValue) -> Message {
    let result = Object::of([("resultType", raw("complete"))]);
    let result = result.with_meta(SUBSCRIPTION, id.to_owned());
    Message::result(id.to_owned(), result.raw())
}

/// Tasks by server and connection id.
type Watchers = HashMap<(McpServerName, u64), AbortOnDropHandle<()>>;

impl RequestHandler {
    /// For a legacy server. Runs until the client disconnects or the server is removed.
    pub(crate) async fn listen_through_hub(
        &self,
        hosted: &Arc<dyn HostedServer>,
        filter: ListenFilter,
        notifications: &mpsc::Sender<Message>,
    ) -> Result<Message, RpcError> {
        let id = &self.client_request.id;
        let name = hosted.name().clone();
        let mut accepted = supported(filter, hosted);
        let hub = self.inner.hubs.of(&name);
        let (member, mut receiver) = hub.listen(self.principal.clone());
        let uris = std::mem::take(&mut accepted.uris);
        for uri in uris.into_iter().filter(|uri| uri.len() <= MAX_URI_BYTES) {
            match member.apply(Preference::Subscribe(uri.clone())).await {
                Ok(answer) if answer.error().is_none() => accepted.uris.push(uri),
                Ok(_) => {}
                // Further requests would time out as well while others wait for the lock.
                Err(_) => break,
            }
        }
        hub.attach(&hosted.main());
        send(notifications, accepted.acknowledged(id)).await?;
        let mut changes = self.inner.registry.changes();
        loop {
            tokio::select! {
                message = receiver.recv() => match message {
                    Some(message) if accepted.matches(&message) => {
                        send(notifications, tagged(&message, id)).await?;
                    }
                    Some(_) => {}
                    None => return Ok(completed(id)),
                },
                changed = changes.changed() => {
                    if changed.is_err() || !self.inner.registry.names().contains(&name) {
                        return Ok(completed(id));
                    }
                }
            }
        }
    }

    /// Runs until the client disconnects.
    pub(crate) async fn listen_to_all(
        &self,
        filter: ListenFilter,
        notifications: &mpsc::Sender<Message>,
    ) -> Result<Message, RpcError> {
        let (id, all) = (&self.client_request.id, &self.inner.all);
        let names = self.inner.registry.names();
        let mut accepted = filter.clone();
        accepted
            .uris
            .retain(|uri| split_uri(uri).is_some_and(|(server, _)| names.contains(&server)));
        send(notifications, accepted.acknowledged(id)).await?;
        let mut changes = self.inner.registry.changes();
        let mut list_changes = ListChanges::default();
        list_changes.update(all);
        let mut watchers = Watchers::new();
        self.watch(&mut watchers, &filter, notifications);
        while changes.changed().await.is_ok() {
            sleep(DEBOUNCE).await;
            changes.borrow_and_update();
            self.watch(&mut watchers, &filter, notifications);
            if list_changes.update(all) {
                for method in filter.list_changes() {
                    send(
                        notifications,
                        tagged(&Message::notification(&method, None), id),
                    )
                    .await?;
                }
            }
        }
        Ok(completed(id))
    }

    /// Starts tasks for new connections and stops those of closed ones.
    fn watch(
        &self,
        watchers: &mut Watchers,
        filter: &ListenFilter,
        notifications: &mpsc::Sender<Message>,
    ) {
        let names = self.inner.registry.names();
        let mut before = std::mem::take(watchers);
        for hosted in names
            .iter()
            .filter_map(|name| self.inner.registry.connected(name))
        {
            let name = hosted.name().clone();
            let key = (name, hosted.main().id());
            let watcher = before.remove(&key).unwrap_or_else(|| {
                let filter = filter.of_server(&key.0);
                // A task per server, so that a slow server or client does not block the others.
                let watching = self
                    .clone()
                    .watch_server(hosted, filter, notifications.clone());
                AbortOnDropHandle::new(tokio::spawn(watching))
            });
            watchers.insert(key, watcher);
        }
    }

    /// Does not keep the server running.
    async fn watch_server(
        self,
        hosted: Arc<dyn HostedServer>,
        filter: ListenFilter,
        notifications: mpsc::Sender<Message>,
    ) {
        let (sender, mut receiver) = mpsc::channel(QUEUE);
        let (name, id) = (hosted.name().clone(), self.client_request.id.clone());
        let listening = async move {
            if let Ok(Some(connection)) = hosted.modern().await {
                let mut params = self.client_request.params.clone();
                params.set("notifications", filter.notifications().raw());
                let options = CallOptions {
                    progress: Some(sender.clone()),
                    caller: Some(self.client_request.id.clone()),
                    is_internal: true,
                    ..CallOptions::default()
                };
                let request = self
                    .client_request
                    .message
                    .clone()
                    .with_params(Some(params.raw()));
                let response = relay(hosted.as_ref(), &connection, request, options).await;
                if response.is_ok() || hosted.handshake().protocol == Protocol::Modern {
                    return;
                }
                // The modern process was stopped because it was idle; the shared one continues.
            }
            // The server may not support notifications.
            drop(self.listen_through_hub(&hosted, filter, &sender).await);
        };
        let forwarding = async {
            while let Some(message) = receiver.recv().await {
                let is_acknowledgement = message.method() == Some(ACKNOWLEDGED);
                let message = tagged(&rewrite_notification(&name, &message), &id);
                if !is_acknowledgement && notifications.send(message).await.is_err() {
                    return;
                }
            }
        };
        tokio::join!(listening, forwarding);
    }
}

async fn send(notifications: &mpsc::Sender<Message>, message: Message) -> Result<(), RpcError> {
    let sent = notifications.send(message).await;
    sent.map_err(|_| RpcError::new(INTERNAL_ERROR, "client disconnected"))
}

/// Without what the server does not support.
fn supported(mut filter: ListenFilter, hosted: &Arc<dyn HostedServer>) -> ListenFilter {
    let handshake = hosted.handshake();
    let capabilities = object(&handshake.capabilities).unwrap_or_default();
    let has = |capability: &str, feature: &str| {
        let features = capabilities.get(capability).and_then(object);
        features.is_some_and(|features| {
            features
                .get(feature)
                .is_some_and(|value| value.get() == "true")
        })
    };
    filter.lists.retain(|list| has(list, "listChanged"));
    if !has("resources", "subscribe") {
        filter.uris.clear();
    }
    filter
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_listen_filter_is_parsed_and_written() {
        let params = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": false,
            "resourceSubscriptions": ["mcp://a/x:y", "mcp://b/z:z"]}});
        let params = Object::parse(&params.to_string()).expect("an object");
        let filter = ListenFilter::of(&params).expect("subscriptions");
        assert_eq!(filter.lists, ["tools"]);
        let name = McpServerName::new("a").expect("a legal name");
        assert_eq!(filter.of_server(&name).uris, ["x:y"]);
        let tools = Message::notification("notifications/tools/list_changed", None);
        let prompts = Message::notification("notifications/prompts/list_changed", None);
        let log = Message::notification("notifications/message", None);
        assert!(filter.matches(&tools) && !filter.matches(&prompts) && !filter.matches(&log));
        let id = raw("sub");
        let news = tagged(&tools, &id)
            .params()
            .map(|params| params.get().to_owned());
        assert_eq!(
            news.as_deref(),
            Some(r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":"sub"}}"#)
        );
        assert!(ListenFilter::of(&Object::default()).is_err());
        let named = |bytes: usize| {
            let params = json!({"notifications": {"resourceSubscriptions": ["x".repeat(bytes)]}});
            Object::parse(&params.to_string()).expect("an object")
        };
        let many = |count: usize| {
            let params = json!({"notifications": {"resourceSubscriptions": vec!["x:y"; count]}});
            Object::parse(&params.to_string()).expect("an object")
        };
        assert!(ListenFilter::of(&many(MAX_SUBSCRIPTIONS)).is_ok());
        assert!(ListenFilter::of(&many(MAX_SUBSCRIPTIONS + 1)).is_err());
        assert!(ListenFilter::of(&named(MAX_TOTAL_URI_BYTES)).is_ok());
        assert!(ListenFilter::of(&named(MAX_TOTAL_URI_BYTES + 1)).is_err());
    }
}
