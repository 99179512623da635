//! A typed client of the Boxwood daemon.
//!
//! Portable: no environment variables, no terminal handling, nothing specific to Linux.
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
mod live;
mod mcp;
mod mcp_gateway;
mod path;
mod processes;
mod resumable;
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
pub use skills::SkillArchive;
