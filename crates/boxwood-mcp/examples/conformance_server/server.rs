//! The request handlers. Most of them are implemented in the other modules.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams,
    CompleteResult, GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult,
    Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ResourceUpdatedNotificationParam, ServerCapabilities, ServerInfo,
    SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool,
    UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{RequestContext, SubscriptionContext, SubscriptionSink};
use rmcp::task_manager::TaskManager;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{asking, completion, prompts, resources, rounds, tasks, tools};

pub(crate) type Context = RequestContext<RoleServer>;

/// Cache lifetime of lists and resources.
const CACHE_TTL_MS: u64 = 60_000;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Versions {
    Both,
    Legacy,
}

/// One for all sessions. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Fixture {
    versions: Versions,
    pub(crate) tasks: TaskManager,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Number of accepted subscriptions.
    accepted: AtomicU64,
    /// Number of subscriptions that were added to `listening`, and key of the next one.
    next: AtomicU64,
    /// Subscriptions of modern clients.
    listening: Mutex<HashMap<u64, SubscriptionSink>>,
    /// URIs that legacy clients have subscribed to.
    watched: Mutex<BTreeSet<String>>,
}

/// A change that a tool triggers.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    Tools,
    Prompts,
    Resource(&'static str),
}

impl Fixture {
    pub(crate) fn new(versions: Versions) -> Self {
        Self {
            versions,
            tasks: TaskManager::new(),
            state: Arc::default(),
        }
    }

    /// Notifies all subscribers. A subscriber that has disconnected is not an error.
    pub(crate) async fn announce(&self, change: Change, context: &Context) {
        self.until_all_listen().await;
        let listening: Vec<SubscriptionSink> = {
            let all = self.state.listening.lock();
            let all = all.unwrap_or_else(PoisonError::into_inner);
            all.values().cloned().collect()
        };
        for sink in listening {
            let _ = match change {
                Change::Tools => sink.notify_tool_list_changed().await,
                Change::Prompts => sink.notify_prompt_list_changed().await,
                Change::Resource(uri) => sink.notify_resource_updated(uri).await,
            };
        }
        if is_modern(context) {
            return;
        }
        let peer = &context.peer;
        let _ = match change {
            Change::Tools => peer.notify_tool_list_changed().await,
            Change::Prompts => peer.notify_prompt_list_changed().await,
            Change::Resource(uri) if self.is_watched(uri) => {
                let changed = ResourceUpdatedNotificationParam::new(uri);
                peer.notify_resource_updated(changed).await
            }
            Change::Resource(_) => Ok(()),
        };
    }

    /// The library acknowledges a subscription before it calls `listen`, so a client may trigger a change in between.
    async fn until_all_listen(&self) {
        let state = &self.state;
        for _ in 0..100 {
            if state.next.load(Ordering::SeqCst) >= state.accepted.load(Ordering::SeqCst) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn is_watched(&self, uri: &str) -> bool {
        let watched = self.state.watched.lock();
        watched
            .unwrap_or_else(PoisonError::into_inner)
            .contains(uri)
    }
}

/// Returns true for a request of the modern protocol version.
pub(crate) fn is_modern(context: &Context) -> bool {
    context.meta.client_capabilities().is_some()
}

/// Converts a JSON value to a type of the SDK. All values are constants of this program, so an error is a bug.
pub(crate) fn model<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    let read = serde_json::from_value(value);
    read.map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerInfo {
        let capabilities = ServerCapabilities::builder()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_logging()
            .enable_completions()
            .enable_tasks()
            .build();
        ServerInfo::new(capabilities)
            .with_server_info(Implementation::new("boxwood-conformance-fixture", "1"))
            .with_instructions("For the conformance suite.")
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        let all = ProtocolVersion::KNOWN_VERSIONS;
        match self.versions {
            Versions::Both => all.into(),
            Versions::Legacy => {
                let first_modern = ProtocolVersion::V_2026_07_28;
                let legacy = all.iter().filter(|version| **version < first_modern);
                legacy.cloned().collect::<Vec<_>>().into()
            }
        }
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let all = tools::list().unwrap_or_default();
        all.into_iter().find(|tool| tool.name == name)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        let result = ListToolsResult::with_all_items(tools::list()?);
        Ok(result
            .with_ttl_ms(CACHE_TTL_MS)
            .with_cache_scope(CacheScope::Public))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.clone();
        if let Some(answer) = rounds::call(&request, &context).await? {
            return Ok(answer);
        }
        if let Some(answer) = tasks::call(self, &request, &context).await? {
            return Ok(answer);
        }
        if let Some(answer) = asking::call(&request, &context).await? {
            return Ok(answer);
        }
        if let Some(answer) = tools::call(self, &request, &context).await? {
            return Ok(answer);
        }
        let unknown = format!("there is no tool `{name}`");
        Err(ErrorData::invalid_params(unknown, None))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        let result = ListResourcesResult::with_all_items(resources::list()?);
        Ok(result
            .with_ttl_ms(CACHE_TTL_MS)
            .with_cache_scope(CacheScope::Public))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let result = ListResourceTemplatesResult::with_all_items(resources::templates()?);
        Ok(result
            .with_ttl_ms(CACHE_TTL_MS)
            .with_cache_scope(CacheScope::Public))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let result = resources::read(&request.uri)?;
        Ok(result
            .with_ttl_ms(CACHE_TTL_MS)
            .with_cache_scope(CacheScope::Public)
            .into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: Context,
    ) -> Result<(), ErrorData> {
        let mut watched = self.state.watched.lock();
        let watched = watched.as_mut().map_err(|_| poisoned())?;
        watched.insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: Context,
    ) -> Result<(), ErrorData> {
        let mut watched = self.state.watched.lock();
        let watched = watched.as_mut().map_err(|_| poisoned())?;
        watched.remove(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        self.state.accepted.fetch_add(1, Ordering::SeqCst);
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let key = {
            let mut listening = self.state.listening.lock();
            let listening = listening.as_mut().map_err(|_| poisoned())?;
            // Incremented under the lock, so that `announce` sees the subscription too.
            let key = self.state.next.fetch_add(1, Ordering::SeqCst);
            listening.insert(key, context.sink().clone());
            key
        };
        context.cancelled().await;
        let mut listening = self.state.listening.lock();
        let listening = listening.as_mut().map_err(|_| poisoned())?;
        listening.remove(&key);
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        let result = ListPromptsResult::with_all_items(prompts::list()?);
        Ok(result
            .with_ttl_ms(CACHE_TTL_MS)
            .with_cache_scope(CacheScope::Public))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        prompts::get(&request, &context).await
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: Context,
    ) -> Result<CompleteResult, ErrorData> {
        completion::complete(&request)
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: Context) -> Result<(), ErrorData> {
        // The suite expects all messages of a call, regardless of the level.
        Ok(())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: Context,
    ) -> Result<GetTaskResult, ErrorData> {
        Ok(GetTaskResult::new(self.tasks.get_task(&request.task_id)?))
    }

    async fn update_task(&self, request: UpdateTaskParams, _: Context) -> Result<(), ErrorData> {
        self.tasks
            .update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(&self, request: CancelTaskParams, _: Context) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }
}

fn poisoned() -> ErrorData {
    ErrorData::internal_error("the state is unusable: another request panicked", None)
}
