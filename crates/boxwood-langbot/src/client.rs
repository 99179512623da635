//! The client of a connection, by its wire format.

use std::sync::Arc;

use http::HeaderMap;
use serde_json::Value;

use crate::transport::Request;
use crate::v0_7::{self, Enrollment, Instance, InstanceGate, start_cleanup};
use crate::{ActionError, LangBot, v0_4};

/// Largest message that each client accepts.
const MAX_RESPONSE_BYTES_V0_4: usize = 1024 * 1024;
const MAX_RESPONSE_BYTES_V0_7: usize = 16 * 1024 * 1024;

/// The handshake has a wrong control token or instance id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unauthorized;

/// Clients of SDK 0.7 send their instance id in a header (over stdio: in the environment); clients of SDK
/// 0.4 have no such header.
pub struct Client {
    /// `None` for SDK 0.4.
    instance: Option<Instance>,
}

impl Client {
    /// Determines the client from the headers of its handshake.
    pub fn from_headers(langbot: &Arc<LangBot>, headers: &HeaderMap) -> Result<Self, Unauthorized> {
        if !InstanceGate::is_v0_7(headers) {
            return Ok(Self { instance: None });
        }
        let gate = &langbot.v0_7.gate;
        let instance = gate
            .authenticate(headers, Enrollment::FirstWins)
            .ok_or_else(|| {
                langbot
                    .log_refusal("wrong control token, or not the LangBot instance of this daemon");
                Unauthorized
            })?;
        start_cleanup(langbot);
        Ok(Self {
            instance: Some(instance),
        })
    }

    /// Determines the client on stdio.
    pub(crate) fn from_environment(langbot: &Arc<LangBot>) -> Self {
        let instance = langbot.v0_7.gate.configured().cloned();
        if instance.is_some() {
            start_cleanup(langbot);
        }
        Self { instance }
    }

    pub(crate) async fn run(
        &self,
        langbot: &Arc<LangBot>,
        request: Request,
    ) -> Result<Value, ActionError> {
        match &self.instance {
            None => v0_4::run(langbot, request).await,
            Some(instance) => v0_7::run(langbot, instance, request).await,
        }
    }

    pub(crate) fn max_response_bytes(&self) -> usize {
        match self.instance {
            None => MAX_RESPONSE_BYTES_V0_4,
            Some(_) => MAX_RESPONSE_BYTES_V0_7,
        }
    }
}
