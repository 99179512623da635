//! Routes for images: list, import, pull and delete.

mod pull;
mod upload;

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use boxwood_api::{
    DeletedImage, ErrorBody, ErrorCode, ImageInfo, ImageList, ImageName, ImageProgress,
    ImageSource, UnlistedBackend,
};
use boxwood_backend::{Backend, ImageError};
use serde::Deserialize;
use utoipa::IntoParams;

use super::error::{ApiError, ApiResult};
use super::params::{Params, path_value};
use super::{App, BACKEND_TIMEOUT, body, json, with_timeout};

/// The backend that can use the directories of `[images]`.
const NATIVE: &str = "native";

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ImageParams {
    /// The backend. Default: the daemon's default backend, or all of them for a list.
    backend: Option<String>,
}

#[utoipa::path(get, path = "/v1/images", tag = "images", operation_id = "list_images",
    params(ImageParams),
    responses((status = 200, description = "The available images", body = ImageList)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Params(choice): Params<ImageParams>,
) -> ApiResult {
    let known = app.sessions.backends();
    let backends = match &choice.backend {
        Some(name) => vec![known.find(name)?],
        None => known.initialised(),
    };
    let listings = backends.iter().map(|backend| async {
        let listed = with_timeout(BACKEND_TIMEOUT, backend.images().list()).await;
        (backend.name(), listed)
    });
    let mut list = ImageList {
        images: Vec::new(),
        unavailable: Vec::new(),
    };
    for (backend, outcome) in futures_util::future::join_all(listings).await {
        list.images.extend(configured(&app, backend));
        match outcome {
            Ok(images) => list.images.extend(images),
            Err(error) if choice.backend.is_some() => return Err(error),
            Err(error) => list.unavailable.push(UnlistedBackend {
                backend: backend.to_owned(),
                why: error.detail().message,
            }),
        }
    }
    Ok(json::ok(list))
}

/// The directories configured in `[images]`.
fn configured(app: &App, backend: &str) -> Vec<ImageInfo> {
    if backend != NATIVE {
        return Vec::new();
    }
    let names = app.rules.images.keys();
    names
        .map(|name| ImageInfo {
            name: name.clone(),
            backend: backend.to_owned(),
            source: ImageSource::Configured,
            id: None,
            size_bytes: None,
            created: None,
        })
        .collect()
}

#[utoipa::path(put, path = "/v1/images/{name}", tag = "images", operation_id = "import_image",
    params(("name" = String, Path, description = "Slashes must be percent-encoded"), ImageParams),
    request_body(content = Vec<u8>, content_type = "application/x-tar",
        description = "A root file system as a tar archive, optionally gzip-compressed"),
    responses((status = 201, description = "The imported image; an image of the same name was replaced", body = ImageInfo)))]
pub(super) async fn import(
    State(app): State<Arc<App>>,
    name: Result<InImage, ApiError>,
    choice: Result<Params<ImageParams>, ApiError>,
    request: Request,
) -> ApiResult {
    let target = || {
        let (InImage(name), Params(choice)) = (name?, choice?);
        Ok((name, chosen(&app, choice.backend.as_deref())?))
    };
    match target() {
        Ok((name, backend)) => {
            let idle = app.body_timeout();
            let info = upload::import(backend.as_ref(), &name, request, idle).await?;
            // Prewarmed boxes use the previous image of this name.
            app.sessions.remove_prewarmed(backend.name()).await;
            Ok(json::created(info))
        }
        Err(error) => {
            body::discard_request(request).await;
            Err(error)
        }
    }
}

#[utoipa::path(post, path = "/v1/images/{name}/pull", tag = "images", operation_id = "pull_image",
    params(("name" = String, Path, description = "Slashes must be percent-encoded"), ImageParams),
    responses(
        (status = 200, content_type = "text/event-stream", body = ImageProgress,
            description = "Events `progress` (this body), then `done` (an `ImageInfo`) or `error` (an `ErrorBody`). \
                           Disconnecting cancels the pull")))]
pub(super) async fn pull(
    State(app): State<Arc<App>>,
    InImage(name): InImage,
    Params(choice): Params<ImageParams>,
) -> ApiResult {
    let backend = chosen(&app, choice.backend.as_deref())?;
    pull::pull(app.sessions.clone(), backend, name, app.stopped()).await
}

#[utoipa::path(delete, path = "/v1/images/{name}", tag = "images", operation_id = "delete_image",
    params(("name" = String, Path, description = "Slashes must be percent-encoded"), ImageParams),
    responses(
        (status = 200, description = "Deleted", body = DeletedImage),
        (status = 409, body = ErrorBody, description = "The image is in use by a box")))]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    InImage(name): InImage,
    Params(choice): Params<ImageParams>,
) -> ApiResult {
    let backend = chosen(&app, choice.backend.as_deref())?;
    if backend.name() == NATIVE && app.rules.images.contains_key(name.as_str()) {
        return Err(ApiError::new(
            ErrorCode::Forbidden,
            format!("image `{name}` is a configured directory, which cannot be deleted here"),
        )
        .hint("remove it from `[images]` in the configuration"));
    }
    // Prewarmed boxes must not prevent the removal.
    app.sessions.remove_prewarmed(backend.name()).await;
    with_timeout(BACKEND_TIMEOUT, backend.images().remove(&name)).await?;
    Ok(json::ok(DeletedImage {
        deleted: name.into(),
    }))
}

fn chosen(app: &App, name: Option<&str>) -> ApiResult<Arc<dyn Backend>> {
    let backends = app.sessions.backends();
    match name {
        Some(name) => Ok(backends.find(name)?),
        None => backends.current().ok_or_else(|| {
            ApiError::new(ErrorCode::BackendUnavailable, "no backend is available")
                .hint("run `boxwood doctor`")
        }),
    }
}

impl From<ImageError> for ApiError {
    fn from(error: ImageError) -> Self {
        let api_error = match &error {
            // The path is only logged.
            ImageError::Io { .. } => Self::internal("the image store failed", &error),
            // Has no error code of its own, only a status.
            ImageError::InUse { .. } => {
                Self::new(error.code(), error.to_string()).status(StatusCode::CONFLICT)
            }
            _ => Self::new(error.code(), error.to_string()),
        };
        api_error.maybe_hint(error.hint())
    }
}

/// The image in the path.
pub(super) struct InImage(ImageName);

impl<S: Send + Sync> FromRequestParts<S> for InImage {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let name = path_value(parts, state, "name").await?;
        ImageName::new(&name.unwrap_or_default())
            .map(Self)
            .map_err(|error| ApiError::validation(error.to_string()).hint(error.hint()))
    }
}
