//! Create, update and delete server definitions.
//!
//! Each change runs in its own task, so that it completes even if the caller's request is cancelled. Changes of one
//! server are serialized.

use std::sync::Arc;

use boxwood_api::{
    EditMcpServerRequest, ImportMcpRequest, ImportedMcp, McpServerInfo, McpServerName,
    McpServerSpec, SkippedMcp, with_causes,
};
use jiff::Timestamp;

use super::HostingError;
use super::context::storing;
use super::definitions::import::read_document;
use super::definitions::store::Stored;
use super::definitions::validate::check;
use super::host::Hosting;
use super::supervisor::handle::Command;
use super::supervisor::handle::ServerHandle;
use super::supervisor::{self, Step};

impl Hosting {
    /// Stores the definition and starts the server. Returns before it is connected.
    pub async fn add(
        &self,
        spec: McpServerSpec,
        replace: bool,
    ) -> Result<McpServerInfo, HostingError> {
        check(&spec)?;
        let hosting = self.clone();
        self.run_to_completion(async move { hosting.add_now(spec, replace).await })
            .await
    }

    /// Imports a client's configuration. A server that cannot be added does not affect the others.
    pub async fn import(&self, request: ImportMcpRequest) -> Result<ImportedMcp, HostingError> {
        let replace = request.replace;
        // Parsing a large document blocks.
        let read = storing("reading the imported document", move || {
            read_document(&request)
        });
        let (specs, mut imported) = read.await?;
        for spec in specs {
            let name = spec.name.clone();
            let existed = self.handle(&name).is_ok();
            match self.add(spec, replace).await {
                Ok(_) if existed => imported.replaced.push(name),
                Ok(_) => imported.added.push(name),
                Err(error) => {
                    tracing::info!(%name, error = %with_causes(&error), "failed to import an MCP server");
                    imported.skipped.push(SkippedMcp {
                        name: name.to_string(),
                        why: error.to_string(),
                    });
                }
            }
        }
        Ok(imported)
    }

    /// Restarts the server only if the change requires it.
    pub async fn edit(
        &self,
        name: &McpServerName,
        edit: EditMcpServerRequest,
    ) -> Result<McpServerInfo, HostingError> {
        let (hosting, name) = (self.clone(), name.clone());
        self.run_to_completion(async move { hosting.edit_now(&name, edit).await })
            .await
    }

    /// Removes the server with its box and its secrets. The periodic cleanup removes an install that
    /// only it used.
    pub async fn remove(&self, name: &McpServerName) -> Result<(), HostingError> {
        let (hosting, name) = (self.clone(), name.clone());
        self.run_to_completion(async move { hosting.remove_now(&name).await })
            .await
    }

    /// Runs `work` to completion even if the returned future is dropped.
    async fn run_to_completion<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, HostingError>> + Send + 'static,
    ) -> Result<T, HostingError> {
        let task = self.inner.context.tasks.spawn(work);
        task.await.unwrap_or(Err(HostingError::Closing))
    }

    async fn add_now(
        &self,
        spec: McpServerSpec,
        replace: bool,
    ) -> Result<McpServerInfo, HostingError> {
        let name = spec.name.clone();
        let _held = self.inner.changing.hold(name.as_str()).await;
        if let Ok(handle) = self.handle(&name) {
            if !replace {
                return Err(HostingError::Exists { name });
            }
            return self.update(&handle, spec).await;
        }
        if self.inner.closing.is_cancelled() {
            return Err(HostingError::Closing);
        }
        let _adding = self.inner.adding.lock().await;
        let limit = self.inner.context.settings.max_servers;
        if self.handles().len() >= limit {
            let message = format!("{limit} MCP servers exist (`mcp.max_servers`)");
            return Err(HostingError::Full { message });
        }
        let stored = self.put(spec).await?;
        // A box may exist from a definition that could not be read or that was removed before its box.
        let first_step = if stored.spec.enabled {
            Step::Start
        } else {
            Step::RemoveBox
        };
        let handle = self.start_supervisor(stored, first_step);
        Ok(handle.state.info())
    }

    async fn edit_now(
        &self,
        name: &McpServerName,
        edit: EditMcpServerRequest,
    ) -> Result<McpServerInfo, HostingError> {
        let _held = self.inner.changing.hold(name.as_str()).await;
        let handle = self.handle(name)?;
        let spec = edit.applied_to(&handle.state.spec());
        let spec = spec.map_err(|error| HostingError::Invalid {
            field: name.to_string(),
            message: error.to_string(),
        })?;
        check(&spec)?;
        self.update(&handle, spec).await
    }

    async fn remove_now(&self, name: &McpServerName) -> Result<(), HostingError> {
        let _held = self.inner.changing.hold(name.as_str()).await;
        let handle = self.handle(name)?;
        match handle.command(Command::Remove).await {
            // The supervisor has ended but the daemon has not, so the removal is done here.
            Err(HostingError::Closing) if !self.inner.closing.is_cancelled() => {
                supervisor::remove_abandoned(&self.inner.context, &handle.state).await?;
            }
            removed => removed?,
        }
        self.handles().remove(name);
        self.inner.changes.send_modify(|count| *count += 1);
        Ok(())
    }

    async fn update(
        &self,
        handle: &ServerHandle,
        spec: McpServerSpec,
    ) -> Result<McpServerInfo, HostingError> {
        let stored = self.put(spec).await?;
        handle.state.replace(stored);
        handle.command(Command::Changed).await?;
        Ok(handle.state.info())
    }

    async fn put(&self, spec: McpServerSpec) -> Result<Stored, HostingError> {
        let context = Arc::clone(&self.inner.context);
        let put = move || context.store.put(&spec, Timestamp::now());
        storing("storing an MCP server", put).await
    }
}
