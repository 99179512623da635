//! Images of boxes.

use boxwood_api::{DeletedImage, ImageInfo, ImageList, ImageName, ImageProgress};
use hyper::Method;
use tokio::io::AsyncRead;

use crate::call::{empty, operation};
use crate::files::streamed;
use crate::path::Target;
use crate::sse::SseBody;
use crate::{Client, ClientError};

const TAR: &str = "application/x-tar";

fn image(name: &ImageName) -> Target {
    Target::new("/v1/images").segment(name.as_str())
}

fn on(target: Target, backend: Option<&str>) -> Target {
    match backend {
        Some(backend) => target.query("backend", backend),
        None => target,
    }
}

/// An event of an image pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullEvent {
    Progress(ImageProgress),
    /// The last event.
    Done(ImageInfo),
}

/// A running image pull. Dropping it cancels the pull.
pub struct ImagePull {
    operation: String,
    body: SseBody,
}

impl ImagePull {
    /// The next event. A failed pull is an error; unknown events are skipped.
    pub async fn next(&mut self) -> Result<PullEvent, ClientError> {
        let unreadable =
            |error: serde_json::Error| ClientError::unexpected(&self.operation, error.to_string());
        while let Some(message) = self.body.next().await? {
            let data = &message.data;
            match message.event.as_str() {
                "progress" => {
                    let news = serde_json::from_str(data).map_err(unreadable)?;
                    return Ok(PullEvent::Progress(news));
                }
                "done" => {
                    let info = serde_json::from_str(data).map_err(unreadable)?;
                    return Ok(PullEvent::Done(info));
                }
                "error" => {
                    // The HTTP status had been sent before the error occurred.
                    const FAILED: u16 = 500;
                    let said = data.as_bytes();
                    return Err(ClientError::from_answer(&self.operation, FAILED, said));
                }
                _ => {}
            }
        }
        let what = "the pull broke off";
        Err(ClientError::unexpected(&self.operation, what))
    }
}

impl Client {
    /// The images of one backend, or of all.
    pub async fn images(&self, backend: Option<&str>) -> Result<ImageList, ClientError> {
        self.get(&on(Target::new("/v1/images"), backend)).await
    }

    /// Imports a tar archive, plain or gzip-compressed. An error of the reader aborts the upload.
    pub async fn import_image(
        &self,
        name: &ImageName,
        backend: Option<&str>,
        archive: impl AsyncRead + Send + Unpin + 'static,
    ) -> Result<ImageInfo, ClientError> {
        let target = on(image(name), backend);
        self.json(Method::PUT, &target, streamed(archive), Some(TAR))
            .await
    }

    pub async fn pull_image(
        &self,
        name: &ImageName,
        backend: Option<&str>,
    ) -> Result<ImagePull, ClientError> {
        let target = on(image(name).fixed("pull"), backend);
        let response = self
            .send(Method::POST, &target, empty(), None, "text/event-stream")
            .await?;
        let operation = operation(&Method::POST, &target);
        Ok(ImagePull {
            body: SseBody::new(operation.clone(), response.into_body()),
            operation,
        })
    }

    pub async fn remove_image(
        &self,
        name: &ImageName,
        backend: Option<&str>,
    ) -> Result<DeletedImage, ClientError> {
        self.delete(&on(image(name), backend)).await
    }
}
