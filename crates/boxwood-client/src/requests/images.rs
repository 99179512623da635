//! Images of boxes.

use boxwood_api::{DeletedImage, ImageInfo, ImageList, ImageName, ImageProgress};
use hyper::Method;
use tokio::io::AsyncRead;

use super::files::streamed;
use crate::http::EVENTS;
use crate::http::sse::SseBody;
use crate::http::target::Target;
use crate::{Client, ClientError, Result};

const TAR: &str = "application/x-tar";

fn image(name: &ImageName) -> Target {
    Target::new("/v1/images").segment(name.as_str())
}

/// An event of an image pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullEvent {
    Progress(ImageProgress),
    /// The last event.
    Done(ImageInfo),
}

/// A running image pull. Dropping it cancels the pull.
pub struct ImagePull(SseBody);

impl ImagePull {
    /// The next event. A failed pull is an error; unknown events are skipped.
    pub async fn next(&mut self) -> Result<PullEvent> {
        while let Some(message) = self.0.next().await? {
            let data = message.data.as_str();
            let event = match message.event.as_str() {
                "progress" => serde_json::from_str(data).map(PullEvent::Progress),
                "done" => serde_json::from_str(data).map(PullEvent::Done),
                "error" => {
                    // The HTTP status had been sent before the error occurred.
                    const FAILED: u16 = 500;
                    let (operation, body) = (self.0.operation(), data.as_bytes());
                    return Err(ClientError::from_response(operation, FAILED, body));
                }
                _ => continue,
            };
            return event.map_err(|error| ClientError::unexpected(self.0.operation(), error));
        }
        let reason = "the pull ended without a result";
        Err(ClientError::unexpected(self.0.operation(), reason))
    }
}

impl Client {
    /// The images of one backend, or of all.
    pub async fn images(&self, backend: Option<&str>) -> Result<ImageList> {
        self.get(&Target::new("/v1/images").maybe_query("backend", backend))
            .await
    }

    /// Imports a tar archive, plain or gzip-compressed. An error of the reader aborts the upload.
    pub async fn import_image(
        &self,
        name: &ImageName,
        backend: Option<&str>,
        archive: impl AsyncRead + Send + Unpin + 'static,
    ) -> Result<ImageInfo> {
        let target = image(name).maybe_query("backend", backend);
        let call = self.call(Method::PUT, &target);
        call.body(TAR, streamed(archive)).json().await
    }

    pub async fn pull_image(&self, name: &ImageName, backend: Option<&str>) -> Result<ImagePull> {
        let target = image(name).fixed("pull").maybe_query("backend", backend);
        let call = self.call(Method::POST, &target).accept(EVENTS);
        Ok(ImagePull(SseBody::new(call.send().await?)))
    }

    pub async fn remove_image(
        &self,
        name: &ImageName,
        backend: Option<&str>,
    ) -> Result<DeletedImage> {
        self.delete(&image(name).maybe_query("backend", backend))
            .await
    }
}
