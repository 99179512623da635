//! The client of a connection, by its wire format.

use std::sync::Arc;

use http::HeaderMap;
use serde_json::Value;

use crate::transport::Request;
use crate::v0_7::{Enrollment, Handler, InstanceGate, start_cleanup};
use crate::{ActionError, LangBot, v0_4};

/// Largest message that each client accepts.
const MAX_RESPONSE_BYTES_V0_4: usize = 1024 * 1024;
const MAX_RESPONSE_BYTES_V0_7: usize = 16 * 1024 * 1024;

/// The handshake has a wrong control token or instance id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unauthorized;

/// Clients of SDK 0.7 send their instance id in a header (over stdio: in the environment); clients of SDK
/// 0.4 have no such header.
pub struct Client(Version);

enum Version {
    V0_4,
    V0_7(Handler),
}

impl Client {
    /// Determines the client from the headers of its handshake.
    pub fn from_headers(langbot: &Arc<LangBot>, headers: &HeaderMap) -> Result<Self, Unauthorized> {
        if !InstanceGate::is_v0_7(headers) {
            return Ok(Self(Version::V0_4));
        }
        let gate = &langbot.v0_7.gate;
        let instance = gate
            .authenticate(headers, Enrollment::FirstWins)
            .ok_or(Unauthorized)?;
        start_cleanup(langbot);
        Ok(Self(Version::V0_7(Handler::new(instance))))
    }

    /// Determines the client on stdio.
    pub(crate) fn from_environment(langbot: &Arc<LangBot>) -> Self {
        let Some(instance) = langbot.v0_7.gate.configured().cloned() else {
            return Self(Version::V0_4);
        };
        start_cleanup(langbot);
        Self(Version::V0_7(Handler::new(instance)))
    }

    pub(crate) async fn run(
        &self,
        langbot: &Arc<LangBot>,
        request: Request,
    ) -> Result<Value, ActionError> {
        match &self.0 {
            Version::V0_4 => v0_4::run(langbot, request).await,
            Version::V0_7(handler) => handler.run(langbot, request).await,
        }
    }

    pub(crate) fn max_response_bytes(&self) -> usize {
        match self.0 {
            Version::V0_4 => MAX_RESPONSE_BYTES_V0_4,
            Version::V0_7(_) => MAX_RESPONSE_BYTES_V0_7,
        }
    }
}
