//! Files of a session. Paths are absolute paths inside its box.

use boxwood_api::{DeletedFile, FileEntry, FileList, MkdirRequest, SessionId};
use bytes::{Bytes, BytesMut};
use futures_util::stream::try_unfold;
use http_body_util::{BodyExt, StreamBody};
use hyper::Method;
use hyper::body::Frame;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::session;
use crate::http::target::Target;
use crate::http::{BINARY, BodyError, HttpResponse, OutBody};
use crate::{Client, ClientError, Result};

/// Chunk size of uploads.
const CHUNK_BYTES: usize = 64 * 1024;

/// HTTP 416: the range is outside of the file.
const NO_SUCH_RANGE: u16 = 416;

fn files(id: &SessionId) -> Target {
    session(id).fixed("files")
}

/// A file download.
pub struct Download(HttpResponse);

impl Download {
    /// The entity tag of the file.
    pub fn tag(&self) -> Option<&str> {
        self.0.header("etag")
    }

    /// The next chunk; `None` at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>> {
        self.0.chunk().await
    }

    /// The whole content, up to `max_bytes` bytes.
    pub async fn whole(mut self, max_bytes: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if chunk.len() > max_bytes.saturating_sub(bytes.len()) {
                let reason = format!("it is longer than {max_bytes} bytes");
                return Err(ClientError::unexpected(&self.0.operation, reason));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }
}

/// A streamed body.
pub(crate) fn streamed(reader: impl AsyncRead + Send + Unpin + 'static) -> OutBody {
    let frames = try_unfold(reader, |mut reader| async move {
        let mut buffer = BytesMut::with_capacity(CHUNK_BYTES);
        let count = reader
            .read_buf(&mut buffer)
            .await
            .map_err(BodyError::from)?;
        Ok((count > 0).then(|| (Frame::data(buffer.freeze()), reader)))
    });
    StreamBody::new(frames).boxed_unsync()
}

impl Client {
    pub async fn stat_file(&self, id: &SessionId, path: &str) -> Result<FileEntry> {
        self.get(&files(id).fixed("stat").query("path", path)).await
    }

    pub async fn list_files(&self, id: &SessionId, path: &str) -> Result<FileList> {
        let target = files(id).fixed("list").query("path", path);
        // The maximum that the daemon lists.
        self.get(&target.query("limit", "10000")).await
    }

    pub async fn read_file(&self, id: &SessionId, path: &str) -> Result<Download> {
        self.download(&files(id).query("path", path), BINARY).await
    }

    pub(crate) async fn download(&self, target: &Target, accept: &'static str) -> Result<Download> {
        let call = self.call(Method::GET, target).accept(accept);
        Ok(Download(call.send().await?))
    }

    /// Up to `max_bytes` bytes starting at `from`; empty past the end of the file.
    pub async fn read_file_part(
        &self,
        id: &SessionId,
        path: &str,
        from: u64,
        max_bytes: u64,
    ) -> Result<Bytes> {
        if max_bytes == 0 {
            return Ok(Bytes::new());
        }
        let range = format!("bytes={from}-{}", from.saturating_add(max_bytes - 1));
        let call = self.call(Method::GET, &files(id).query("path", path));
        match call.accept(BINARY).header("range", &range).send().await {
            Err(ClientError::Refused { status, .. }) if status == NO_SUCH_RANGE => Ok(Bytes::new()),
            Err(error) => Err(error),
            Ok(response) => {
                let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
                Ok(Download(response).whole(max_bytes).await?.into())
            }
        }
    }

    /// Writes a file from a reader. An error of the reader aborts the upload.
    pub async fn upload_file(
        &self,
        id: &SessionId,
        path: &str,
        mode: u32,
        reader: impl AsyncRead + Send + Unpin + 'static,
    ) -> Result<FileEntry> {
        let target = files(id)
            .query("path", path)
            .query("mode", &format!("{mode:o}"));
        let call = self.call(Method::PUT, &target);
        call.body(BINARY, streamed(reader)).json().await
    }

    /// Creates a directory and its parents; succeeds if it exists.
    pub async fn make_directory(&self, id: &SessionId, path: &str) -> Result<()> {
        let request = MkdirRequest {
            path: path.to_owned(),
            parents: true,
        };
        let _: FileEntry = self.post(&files(id).fixed("mkdir"), &request).await?;
        Ok(())
    }

    /// Deletes a file, or a directory with its contents.
    pub async fn remove_file(&self, id: &SessionId, path: &str) -> Result<()> {
        let target = files(id).query("path", path).query("recursive", "true");
        let _: DeletedFile = self.delete(&target).await?;
        Ok(())
    }
}
