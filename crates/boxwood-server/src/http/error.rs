//! Error responses: maps errors of all layers to a status and an [`ErrorBody`](boxwood_api::ErrorBody).

use std::error::Error;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use boxwood_api::{
    ErrorCode, ErrorDetail, FieldError, McpErrorBody, McpErrorDetail, McpPhase, with_causes,
};
use boxwood_policy::Denial;
use boxwood_session::SessionError;

#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    code: ErrorCode,
    status: StatusCode,
    message: String,
    hint: Option<String>,
    /// Of a hosted MCP server.
    phase: Option<McpPhase>,
    /// The chain of causes of an internal error. Only logged.
    cause: Option<String>,
}

/// The result of a handler, or of a part of one.
pub(crate) type ApiResult<T = Response> = Result<T, ApiError>;

/// Response extension with the cause of an internal error, for the log.
#[derive(Clone)]
pub(crate) struct Cause(pub(crate) String);

impl ApiError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            status: status_of(code),
            message: message.into(),
            hint: None,
            phase: None,
            cause: None,
        }
    }

    pub(crate) fn validation(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::ValidationError, message)
    }

    pub(crate) fn internal(message: &str, cause: &(dyn Error + 'static)) -> Self {
        Self {
            cause: Some(with_causes(cause)),
            ..Self::new(ErrorCode::InternalError, message)
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn maybe_hint(mut self, hint: Option<impl Into<String>>) -> Self {
        self.hint = hint.map(Into::into);
        self
    }

    pub(crate) fn phase(mut self, phase: Option<McpPhase>) -> Self {
        self.phase = phase;
        self
    }

    /// Overrides the status that follows from the code.
    pub(crate) fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn code(&self) -> ErrorCode {
        self.code
    }

    /// The error without its cause, which is logged.
    pub(crate) fn detail(self) -> ErrorDetail {
        if let Some(cause) = self.cause {
            tracing::error!(error = self.message, cause, "internal error");
        }
        ErrorDetail {
            code: self.code,
            message: self.message,
            hint: self.hint,
        }
    }
}

fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::ValidationError => StatusCode::BAD_REQUEST,
        ErrorCode::Unauthorized => StatusCode::UNAUTHORIZED,
        ErrorCode::Forbidden => StatusCode::FORBIDDEN,
        ErrorCode::SessionNotFound
        | ErrorCode::ManagedProcessNotFound
        | ErrorCode::ImageNotFound
        | ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::SessionConflict | ErrorCode::ManagedProcessConflict => StatusCode::CONFLICT,
        ErrorCode::SessionGone | ErrorCode::ReplayGone => StatusCode::GONE,
        ErrorCode::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorCode::InternalError => StatusCode::INTERNAL_SERVER_ERROR,
        ErrorCode::BackendUnavailable | ErrorCode::Capacity => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::Timeout => StatusCode::GATEWAY_TIMEOUT,
    }
}

impl IntoResponse for ApiError {
    fn into_response(mut self) -> Response {
        let status = self.status;
        // Logged by `guard::account`, with the request id.
        let cause = self.cause.take();
        let code = self.code;
        let phase = self.phase;
        // Without a phase it serialises like `ErrorBody`.
        let body = McpErrorBody {
            error: McpErrorDetail {
                error: self.detail(),
                phase,
            },
        };
        let mut response = super::json::answer(status, &body);
        let extra = match code {
            ErrorCode::Unauthorized => Some((header::WWW_AUTHENTICATE, "Bearer")),
            ErrorCode::Capacity => Some((header::RETRY_AFTER, "1")),
            _ => None,
        };
        if let Some((name, value)) = extra {
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(name, value);
        }
        if let Some(cause) = cause {
            response.extensions_mut().insert(Cause(cause));
        }
        response
    }
}

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> Self {
        let code = error.code();
        Self {
            hint: error.hint(),
            cause: (code == ErrorCode::InternalError).then(|| with_causes(&error)),
            ..Self::new(code, error.to_string())
        }
    }
}

impl From<Denial> for ApiError {
    fn from(denial: Denial) -> Self {
        Self::new(denial.code(), denial.to_string()).maybe_hint(denial.hint())
    }
}

impl From<FieldError> for ApiError {
    fn from(error: FieldError) -> Self {
        Self::validation(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_contains_each_cause_once() {
        let source = std::io::Error::other("disk on fire");
        let error = boxwood_backend::StartError::Step {
            step: "mount /proc".to_owned(),
            source,
        };
        assert_eq!(
            with_causes(&error),
            "the box could not be started: mount /proc: disk on fire"
        );
    }
}
