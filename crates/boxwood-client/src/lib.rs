//! A typed client of the Boxwood daemon.
//!
//! It reads no environment variables and does not use the terminal.
#![forbid(unsafe_code)]

mod endpoint;
mod error;
mod http;
mod requests;
mod resumable;

pub use endpoint::{DEFAULT_PORT, Endpoint, Secure};
pub use error::{ClientError, Result};
pub use http::{Client, Token};
pub use requests::events::EventStream;
pub use requests::files::Download;
pub use requests::gateway::{GatewayAnswer, GatewayEvent, GatewayHeaders, GatewayStream};
pub use requests::images::{ImagePull, PullEvent};
pub use requests::mcp::{McpProgressStream, McpTest};
pub use requests::skills::SkillArchive;
pub use resumable::attach::{Attached, AttachedEvent, AttachedReceiver, AttachedSender};
pub use resumable::exec::{LiveExec, LiveRequest};
pub use resumable::{LiveEvent, LiveReceiver, LiveSender, Since};
