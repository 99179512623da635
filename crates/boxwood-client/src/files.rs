//! Files of a session. Paths are absolute paths inside its box.

use boxwood_api::{FileEntry, FileList, MkdirRequest, MoveRequest, SessionId};
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use http_body_util::{BodyExt, StreamBody};
use hyper::Method;
use hyper::body::{Frame, Incoming};
use hyper::header::CONTENT_LENGTH;

use crate::call::{BodyError, OutBody, empty, full, operation};
use crate::path::Target;
use crate::sessions::session;
use crate::{Client, ClientError};

const BINARY: &str = "application/octet-stream";

fn files(id: &SessionId) -> Target {
    session(id).fixed("files")
}

/// A file on its way out of a box.
pub struct Download {
    operation: String,
    /// As the daemon announced it.
    length: Option<u64>,
    body: Incoming,
}

impl Download {
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// The next piece; `None` at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| ClientError::lost(&self.operation, error))?;
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

impl Client {
    pub async fn stat_file(&self, id: &SessionId, path: &str) -> Result<FileEntry, ClientError> {
        self.get(&files(id).fixed("stat").query("path", path)).await
    }

    pub async fn list_files(&self, id: &SessionId, path: &str) -> Result<FileList, ClientError> {
        self.get(&files(id).fixed("list").query("path", path)).await
    }

    pub async fn read_file(&self, id: &SessionId, path: &str) -> Result<Download, ClientError> {
        let target = files(id).query("path", path);
        let response = self
            .send(Method::GET, &target, empty(), None, BINARY)
            .await?;
        let length = response
            .headers()
            .get(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.parse().ok());
        Ok(Download {
            operation: operation(&Method::GET, &target),
            length,
            body: response.into_body(),
        })
    }

    pub async fn write_file(
        &self,
        id: &SessionId,
        path: &str,
        mode: u32,
        contents: impl Into<Bytes>,
    ) -> Result<FileEntry, ClientError> {
        self.put(id, path, mode, full(contents)).await
    }

    /// Writes a file of any size from a stream of pieces. An error in the stream ends the upload.
    pub async fn upload_file<S, E>(
        &self,
        id: &SessionId,
        path: &str,
        mode: u32,
        pieces: S,
    ) -> Result<FileEntry, ClientError>
    where
        S: Stream<Item = Result<Bytes, E>> + Send + 'static,
        E: Into<BodyError> + 'static,
    {
        let frames = pieces.map_ok(Frame::data).map_err(Into::into);
        let body = StreamBody::new(frames).boxed_unsync();
        self.put(id, path, mode, body).await
    }

    async fn put(
        &self,
        id: &SessionId,
        path: &str,
        mode: u32,
        body: OutBody,
    ) -> Result<FileEntry, ClientError> {
        let target = files(id)
            .query("path", path)
            .query("mode", &format!("{mode:o}"));
        self.json(Method::PUT, &target, body, Some(BINARY)).await
    }

    /// Makes a directory and those above it; content when it exists.
    pub async fn make_directory(&self, id: &SessionId, path: &str) -> Result<(), ClientError> {
        let request = MkdirRequest {
            path: path.to_owned(),
            parents: true,
        };
        let _: serde_json::Value = self.post(&files(id).fixed("mkdir"), &request).await?;
        Ok(())
    }

    pub async fn move_file(
        &self,
        id: &SessionId,
        request: &MoveRequest,
    ) -> Result<(), ClientError> {
        let _: serde_json::Value = self.post(&files(id).fixed("move"), request).await?;
        Ok(())
    }

    /// Removes a file, or a directory with everything in it.
    pub async fn remove_file(&self, id: &SessionId, path: &str) -> Result<(), ClientError> {
        let target = files(id).query("path", path).query("recursive", "true");
        let _: serde_json::Value = self.delete(&target).await?;
        Ok(())
    }
}
