//! Routes about images: which there are, bringing one, removing one.
//!
//! Comes in: a name, perhaps a backend, perhaps an archive of any length. Goes out: lists, and the
//! news of a pull as events. Never here: what an image is made of; that is the backend's.
#![expect(
    unused_qualifications,
    reason = "the expansion of `utoipa::path` qualifies the parameter types"
)]

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use boxwood_api::{
    DeletedImage, ErrorBody, ErrorCode, ImageInfo, ImageList, ImageName, ImageProgress,
    ImageSource, UnlistedBackend,
};
use boxwood_backend::{Backend, ImageError};
use serde::Deserialize;
use utoipa::IntoParams;

use super::error::{ApiError, ApiResult};
use super::ids::Params;
use super::{App, PATIENCE, image_pull, image_upload, json, within};

/// The backend whose boxes have a root of this machine's, and so may have the operator's directories.
const NATIVE: &str = "native";

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Where {
    /// The backend whose images are meant; the one that new sessions get when left out.
    #[serde(default)]
    backend: Option<String>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Listed {
    /// Only this backend's images; those of every backend when left out.
    #[serde(default)]
    backend: Option<String>,
}

#[utoipa::path(get, path = "/v1/images", tag = "images", operation_id = "list_images",
    params(Listed),
    responses(
        (status = 200, description = "The images that boxes can start from", body = ImageList),
        (status = 400, body = ErrorBody, description = "No such backend"),
        (status = 503, body = ErrorBody, description = "The backend does not work")))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Params(listed): Params<Listed>,
) -> ApiResult<Response> {
    if let Some(name) = &listed.backend {
        let backend = app.sessions.backends().find(name)?;
        let mut images = configured(&app, backend.name());
        images.extend(of_backend(backend.as_ref()).await?);
        return Ok(json::ok(&ImageList {
            images,
            unavailable: Vec::new(),
        }));
    }
    let backends = app.sessions.backends().living();
    let asked = backends.iter().map(|backend| async {
        let own = configured(&app, backend.name());
        (backend.name(), own, of_backend(backend.as_ref()).await)
    });
    let mut list = ImageList {
        images: Vec::new(),
        unavailable: Vec::new(),
    };
    for (backend, own, outcome) in futures_util::future::join_all(asked).await {
        list.images.extend(own);
        match outcome {
            Ok(images) => list.images.extend(images),
            Err(error) => list.unavailable.push(UnlistedBackend {
                backend: backend.to_owned(),
                why: error.message().to_owned(),
            }),
        }
    }
    Ok(json::ok(&list))
}

async fn of_backend(backend: &dyn Backend) -> ApiResult<Vec<ImageInfo>> {
    within(PATIENCE, async {
        backend
            .images()
            .list()
            .await
            .map_err(|error| refusal(&error))
    })
    .await
}

/// The operator's own directories.
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
    params(("name" = String, Path, description = "Percent-encoded where it has slashes"), Where),
    request_body(content = Vec<u8>, content_type = "application/x-tar",
        description = "A root file system as a tar archive, plain or with gzip"),
    responses(
        (status = 201, description = "The image; it replaced what had its name", body = ImageInfo),
        (status = 400, body = ErrorBody, description = "The name or the archive makes no sense"),
        (status = 413, body = ErrorBody, description = "The image is too large"),
        (status = 503, body = ErrorBody, description = "The backend does not work")))]
pub(super) async fn import(
    State(app): State<Arc<App>>,
    name: Result<InImage, ApiError>,
    choice: Result<Params<Where>, ApiError>,
    request: Request,
) -> ApiResult<Response> {
    let meant = || {
        let (InImage(name), Params(choice)) = (name?, choice?);
        Ok((name, chosen(&app, choice.backend.as_deref())?))
    };
    match meant() {
        Ok((name, backend)) => {
            let idle = app.body_timeout();
            let info = image_upload::import(backend.as_ref(), &name, request, idle).await?;
            // What was made ahead was made from what had the name before.
            app.sessions.forget_warm(backend.name()).await;
            Ok(json::created(&info))
        }
        Err(error) => {
            image_upload::pass_over(request).await;
            Err(error)
        }
    }
}

#[utoipa::path(post, path = "/v1/images/{name}/pull", tag = "images", operation_id = "pull_image",
    params(("name" = String, Path, description = "Percent-encoded where it has slashes"), Where),
    responses(
        (status = 200, content_type = "text/event-stream", body = ImageProgress,
            description = "Events `progress` (this body), then `done` (an `ImageInfo`) or `error` (an `ErrorBody`). \
                           A caller who leaves ends the pull"),
        (status = 400, body = ErrorBody, description = "The name makes no sense, or the backend cannot pull"),
        (status = 404, body = ErrorBody, description = "There is no such image, or no registry"),
        (status = 503, body = ErrorBody, description = "The backend does not work")))]
pub(super) async fn pull(
    State(app): State<Arc<App>>,
    InImage(name): InImage,
    Params(choice): Params<Where>,
) -> ApiResult<Response> {
    let backend = chosen(&app, choice.backend.as_deref())?;
    image_pull::pull(app.sessions.clone(), backend, name, app.stopping.clone()).await
}

#[utoipa::path(delete, path = "/v1/images/{name}", tag = "images", operation_id = "delete_image",
    params(("name" = String, Path, description = "Percent-encoded where it has slashes"), Where),
    responses(
        (status = 200, description = "It is gone", body = DeletedImage),
        (status = 404, body = ErrorBody, description = "No such image"),
        (status = 409, body = ErrorBody, description = "A box runs from it"),
        (status = 503, body = ErrorBody, description = "The backend does not work")))]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    InImage(name): InImage,
    Params(choice): Params<Where>,
) -> ApiResult<Response> {
    let backend = chosen(&app, choice.backend.as_deref())?;
    if backend.name() == NATIVE && app.rules.images.contains_key(name.as_str()) {
        return Err(ApiError::new(
            ErrorCode::Forbidden,
            format!("image `{name}` is a directory of the operator's"),
        )
        .hint("take it out of `[images]` in the configuration"));
    }
    // Boxes that nobody uses yet are in nobody's way.
    app.sessions.forget_warm(backend.name()).await;
    within(PATIENCE, async {
        let removed = backend.images().remove(&name).await;
        removed.map_err(|error| refusal(&error))
    })
    .await?;
    Ok(json::ok(&DeletedImage {
        deleted: name.into(),
    }))
}

fn chosen(app: &App, wanted: Option<&str>) -> ApiResult<Arc<dyn Backend>> {
    let backends = app.sessions.backends();
    match wanted {
        Some(name) => Ok(backends.find(name)?),
        None => backends.current().ok_or_else(|| {
            ApiError::new(ErrorCode::BackendUnavailable, "no backend works here")
                .hint("run `boxwood doctor`")
        }),
    }
}

/// What a backend says about images, as an answer of `/v1`.
pub(super) fn refusal(error: &ImageError) -> ApiError {
    let answer = match error {
        // The path is for the log.
        ImageError::Io { .. } => ApiError::internal("the image store failed", error),
        // There is no code for it; the status says it.
        ImageError::InUse { .. } => {
            ApiError::new(error.code(), error.to_string()).status(StatusCode::CONFLICT)
        }
        _ => ApiError::new(error.code(), error.to_string()),
    };
    match error.hint() {
        Some(hint) => answer.hint(hint),
        None => answer,
    }
}

/// The image in the path.
pub(super) struct InImage(ImageName);

impl<S: Send + Sync> FromRequestParts<S> for InImage {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        // Decoded once, by the router.
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|_| ApiError::validation("the path is not valid UTF-8 once decoded"))?;
        let name = params.iter().find(|(name, _)| *name == "name");
        ImageName::new(name.map_or("", |(_, value)| value))
            .map(Self)
            .map_err(|error| ApiError::validation(error.to_string()).hint(error.hint()))
    }
}
