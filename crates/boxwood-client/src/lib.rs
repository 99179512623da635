//! A typed client of the Boxwood daemon.
//!
//! Comes in: requests in the words of `boxwood-api`. Goes out: its answers, or a [`ClientError`] with
//! a code, a message and, where there is one, a hint. Never here: environment variables, terminals,
//! words for people beyond error texts, anything that only Linux has.
#![forbid(unsafe_code)]

mod agent;
mod attach;
mod backoff;
mod call;
mod connect;
mod endpoint;
mod error;
mod events;
mod execs;
mod file_tools;
mod files;
mod images;
mod lifeline;
mod live;
mod mcp;
mod mcp_gateway;
mod path;
mod processes;
mod relay;
mod sessions;
mod skills;
mod sse;
mod websocket;

pub use attach::{Attached, AttachedEvent, AttachedReceiver, AttachedSender, Since};
pub use call::{Client, Token};
pub use endpoint::{DEFAULT_PORT, Endpoint, Secure};
pub use error::ClientError;
pub use events::EventStream;
pub use files::Download;
pub use images::{ImagePull, PullEvent};
pub use live::{LiveEvent, LiveExec, LiveReceiver, LiveRequest, LiveSender};
pub use mcp::{McpCallError, McpProgressStream};
pub use mcp_gateway::{GatewayAnswer, GatewayEvent, GatewayHeaders, GatewayStream};
pub use relay::Relay;
pub use skills::SkillArchive;
