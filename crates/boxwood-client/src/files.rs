//! Files of a session. Paths are absolute paths inside its box.

use boxwood_api::{DeletedFile, FileEntry, FileList, MkdirRequest, MoveRequest, SessionId};
use bytes::{Bytes, BytesMut};
use futures_util::stream::try_unfold;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, ETAG, HeaderName, HeaderValue, RANGE};
use hyper::{Method, Response};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::call::{BodyError, OutBody, empty, full, operation};
use crate::path::Target;
use crate::sessions::session;
use crate::{Client, ClientError};

pub(crate) const BINARY: &str = "application/octet-stream";

/// Chunk size of uploads.
const PIECE_BYTES: usize = 64 * 1024;

/// HTTP 416: the range is outside of the file.
const NO_SUCH_RANGE: u16 = 416;

fn files(id: &SessionId) -> Target {
    session(id).fixed("files")
}

/// A file download.
pub struct Download {
    operation: String,
    /// The announced size.
    length: Option<u64>,
    tag: Option<String>,
    body: Incoming,
}

impl Download {
    pub(crate) fn new(operation: String, response: Response<Incoming>) -> Self {
        let text = |name: HeaderName| {
            let value = response.headers().get(name)?;
            value.to_str().ok()
        };
        Self {
            operation,
            length: text(CONTENT_LENGTH).and_then(|text| text.parse().ok()),
            tag: text(ETAG).map(str::to_owned),
            body: response.into_body(),
        }
    }

    /// The entity tag of the file.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The whole content, up to `most` bytes.
    pub async fn whole(mut self, most: usize) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.chunk().await? {
            if piece.len() > most.saturating_sub(bytes.len()) {
                let what = format!("it is longer than {most} bytes");
                return Err(ClientError::unexpected(&self.operation, what));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// The next chunk; `None` at the end.
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

/// A streamed body.
pub(crate) fn streamed(reader: impl AsyncRead + Send + Unpin + 'static) -> OutBody {
    let frames = try_unfold(reader, |mut reader| async move {
        let mut piece = BytesMut::with_capacity(PIECE_BYTES);
        let count = reader.read_buf(&mut piece).await.map_err(BodyError::from)?;
        Ok((count > 0).then(|| (Frame::data(piece.freeze()), reader)))
    });
    StreamBody::new(frames).boxed_unsync()
}

impl Client {
    pub async fn stat_file(&self, id: &SessionId, path: &str) -> Result<FileEntry, ClientError> {
        self.get(&files(id).fixed("stat").query("path", path)).await
    }

    pub async fn list_files(&self, id: &SessionId, path: &str) -> Result<FileList, ClientError> {
        // The maximum that the daemon lists.
        let target = files(id)
            .fixed("list")
            .query("path", path)
            .query("limit", "10000");
        self.get(&target).await
    }

    pub async fn read_file(&self, id: &SessionId, path: &str) -> Result<Download, ClientError> {
        let target = files(id).query("path", path);
        let response = self
            .send(Method::GET, &target, empty(), None, BINARY)
            .await?;
        Ok(Download::new(operation(&Method::GET, &target), response))
    }

    /// At most `most` bytes starting at `from`; empty past the end of the file.
    pub async fn read_file_part(
        &self,
        id: &SessionId,
        path: &str,
        from: u64,
        most: u64,
    ) -> Result<Bytes, ClientError> {
        if most == 0 {
            return Ok(Bytes::new());
        }
        let target = files(id).query("path", path);
        let operation = operation(&Method::GET, &target);
        let range = format!("bytes={from}-{}", from.saturating_add(most - 1));
        let range = HeaderValue::try_from(range)
            .map_err(|error| ClientError::unexpected(&operation, error.to_string()))?;
        let part = Some((RANGE, range));
        let sent = self.send_with(Method::GET, &target, empty(), None, BINARY, part);
        let response = match sent.await {
            Err(ClientError::Refused { status, .. }) if status == NO_SUCH_RANGE => {
                return Ok(Bytes::new());
            }
            sent => sent?,
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let bytes = Download::new(operation, response).whole(most).await?;
        Ok(bytes.into())
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

    /// Writes a file from a reader. An error of the reader aborts the upload.
    pub async fn upload_file(
        &self,
        id: &SessionId,
        path: &str,
        mode: u32,
        reader: impl AsyncRead + Send + Unpin + 'static,
    ) -> Result<FileEntry, ClientError> {
        self.put(id, path, mode, streamed(reader)).await
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

    /// Creates a directory and its parents; succeeds if it exists.
    pub async fn make_directory(&self, id: &SessionId, path: &str) -> Result<(), ClientError> {
        let request = MkdirRequest {
            path: path.to_owned(),
            parents: true,
        };
        let _: FileEntry = self.post(&files(id).fixed("mkdir"), &request).await?;
        Ok(())
    }

    pub async fn move_file(
        &self,
        id: &SessionId,
        request: &MoveRequest,
    ) -> Result<(), ClientError> {
        let _: FileEntry = self.post(&files(id).fixed("move"), request).await?;
        Ok(())
    }

    /// Deletes a file, or a directory with its contents.
    pub async fn remove_file(&self, id: &SessionId, path: &str) -> Result<(), ClientError> {
        let target = files(id).query("path", path).query("recursive", "true");
        let _: DeletedFile = self.delete(&target).await?;
        Ok(())
    }
}
