//! HTTP endpoints of the gateway: Streamable HTTP (`POST`, `GET`, `DELETE`) and the HTTP+SSE transport of
//! protocol version 2024-11-05.

pub(crate) mod headers;
pub(crate) mod legacy_sse;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod sse;
pub(crate) mod streamable;
