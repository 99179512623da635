//! Servers come, are described anew, and go.
//!
//! Comes in: wishes. Goes out: what is stored and what runs, the same in both. Whoever asked may lose
//! patience at any moment, so each change is a task of its own that is always finished. Changes of one
//! server wait for each other; those of different servers do not.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use boxwood_api::{
    EditMcpServerRequest, ImportMcpRequest, ImportedMcp, McpServerInfo, McpServerName,
    McpServerSpec, SkippedMcp,
};
use jiff::Timestamp;

use super::check::check;
use super::host::{Hosting, Inner};
use super::import::read_document;
use super::orders::Order;
use super::seat::Seat;
use super::store::Stored;
use super::supervisor::Mode;
use super::{HostingError, removal};

impl Hosting {
    /// Stores it and has it started. Returns before it is connected.
    pub async fn add(
        &self,
        spec: McpServerSpec,
        replace: bool,
    ) -> Result<McpServerInfo, HostingError> {
        check(&spec)?;
        let hosting = self.clone();
        self.finished(async move { hosting.add_now(spec, replace).await })
            .await
    }

    /// A client's configuration, pasted as it is. One server that cannot be had spoils no other.
    pub async fn import(&self, request: ImportMcpRequest) -> Result<ImportedMcp, HostingError> {
        let replace = request.replace;
        // A long document takes a while.
        let read = tokio::task::spawn_blocking(move || read_document(&request));
        let (specs, mut imported) = read.await.unwrap_or_else(|error| {
            Err(HostingError::Storage {
                doing: "reading a document of MCP servers",
                source: std::io::Error::other(error),
            })
        })?;
        for spec in specs {
            let name = spec.name.clone();
            let was_there = self.seat(&name).is_ok();
            match self.add(spec, replace).await {
                Ok(_) if was_there => imported.replaced.push(name),
                Ok(_) => imported.added.push(name),
                Err(error) => imported.skipped.push(SkippedMcp {
                    name: name.to_string(),
                    why: error.to_string(),
                }),
            }
        }
        Ok(imported)
    }

    /// Restarts it where that is needed, and only there.
    pub async fn edit(
        &self,
        name: &McpServerName,
        edit: EditMcpServerRequest,
    ) -> Result<McpServerInfo, HostingError> {
        let (hosting, name) = (self.clone(), name.clone());
        self.finished(async move { hosting.edit_now(&name, edit).await })
            .await
    }

    /// Nothing of it is left: no box, no copy, no secret, and before long no install that only it used.
    pub async fn remove(&self, name: &McpServerName) -> Result<(), HostingError> {
        let (hosting, name) = (self.clone(), name.clone());
        self.finished(async move { hosting.remove_now(&name).await })
            .await
    }

    /// Goes on when the caller does not.
    async fn finished<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, HostingError>> + Send + 'static,
    ) -> Result<T, HostingError> {
        let done = self.inner.kit.tasks.spawn(work);
        done.await.unwrap_or(Err(HostingError::Closing))
    }

    async fn add_now(
        &self,
        spec: McpServerSpec,
        replace: bool,
    ) -> Result<McpServerInfo, HostingError> {
        let name = spec.name.clone();
        let _held = self.inner.changing.hold(name.as_str()).await;
        if let Ok(seat) = self.seat(&name) {
            if !replace {
                return Err(HostingError::Exists { name });
            }
            return self.describe_anew(&seat, spec).await;
        }
        if self.inner.closing.is_cancelled() {
            return Err(HostingError::Closing);
        }
        let _coming = Coming::new(&self.inner)?;
        let stored = self.put(spec).await?;
        // One that could not be read, or that went while its box stayed, may have left that.
        let first = if stored.spec.enabled {
            Mode::Start
        } else {
            Mode::Clear
        };
        let seat = self.attend(stored, first);
        Ok(seat.hosted.info())
    }

    async fn edit_now(
        &self,
        name: &McpServerName,
        edit: EditMcpServerRequest,
    ) -> Result<McpServerInfo, HostingError> {
        let _held = self.inner.changing.hold(name.as_str()).await;
        let seat = self.seat(name)?;
        let mut spec = McpServerSpec::clone(&seat.hosted.spec());
        edit.apply(&mut spec);
        check(&spec)?;
        self.describe_anew(&seat, spec).await
    }

    async fn remove_now(&self, name: &McpServerName) -> Result<(), HostingError> {
        let _held = self.inner.changing.hold(name.as_str()).await;
        let seat = self.seat(name)?;
        match seat.order(Order::Remove).await {
            // Whoever attended to it is gone, and the daemon is not: nobody else does it.
            Err(HostingError::Closing) if !self.inner.closing.is_cancelled() => {
                removal::of_abandoned(&self.inner.kit, &seat.hosted).await?;
            }
            removed => removed?,
        }
        self.seats().remove(name);
        self.inner.changes.send_modify(|count| *count += 1);
        Ok(())
    }

    async fn describe_anew(
        &self,
        seat: &Seat,
        spec: McpServerSpec,
    ) -> Result<McpServerInfo, HostingError> {
        let stored = self.put(spec).await?;
        seat.hosted.replace(stored);
        seat.order(Order::Changed).await?;
        Ok(seat.hosted.info())
    }

    async fn put(&self, spec: McpServerSpec) -> Result<Stored, HostingError> {
        let kit = Arc::clone(&self.inner.kit);
        let put = tokio::task::spawn_blocking(move || kit.store.put(&spec, Timestamp::now()));
        put.await.unwrap_or_else(|error| {
            Err(HostingError::Storage {
                doing: "storing an MCP server",
                source: std::io::Error::other(error),
            })
        })
    }
}

/// A place for a server that is being added.
struct Coming<'a>(&'a Inner);

impl<'a> Coming<'a> {
    fn new(inner: &'a Inner) -> Result<Self, HostingError> {
        let seats = inner.seats.lock();
        let seats = seats.unwrap_or_else(std::sync::PoisonError::into_inner);
        let most = inner.kit.settings.max_servers;
        if seats.len() + inner.coming.load(Ordering::Relaxed) >= most {
            let message = format!("{most} MCP servers are the most there can be");
            return Err(HostingError::Full { message });
        }
        inner.coming.fetch_add(1, Ordering::Relaxed);
        Ok(Self(inner))
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.0.coming.fetch_sub(1, Ordering::Relaxed);
    }
}
