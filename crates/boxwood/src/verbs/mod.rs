//! One file per verb: its flags, its help, and what it does.

pub(crate) mod attach;
pub(crate) mod completion;
pub(crate) mod cp;
pub(crate) mod create;
mod deletions;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod image;
pub(crate) mod inspect;
pub(crate) mod kill;
pub(crate) mod logs;
pub(crate) mod ls;
pub(crate) mod mcp;
pub(crate) mod mcp_server;
pub(crate) mod profiles;
pub(crate) mod ps;
pub(crate) mod rm;
#[cfg(target_os = "linux")]
pub(crate) mod run;
#[cfg(target_os = "linux")]
pub(crate) mod serve;
pub(crate) mod sh;
pub(crate) mod skill;
pub(crate) mod start;
pub(crate) mod stop;
#[cfg(target_os = "linux")]
pub(crate) mod token;
pub(crate) mod tool;

use std::time::Duration;

use boxwood_api::{ProcessId, SessionId};
use jiff::Timestamp;

use crate::flags::duration_text;

/// A session's name as an argument.
pub(crate) fn session_id(text: &str) -> Result<SessionId, String> {
    SessionId::new(text).map_err(|error| error.to_string())
}

/// A managed process's name as an argument.
pub(crate) fn process_id(text: &str) -> Result<ProcessId, String> {
    ProcessId::new(text).map_err(|error| error.to_string())
}

/// How long ago something was, for a column.
fn ago(then: Timestamp) -> String {
    let passed = Timestamp::now().duration_since(then);
    // The daemon's clock may be ahead of ours.
    let passed = Duration::try_from(passed).unwrap_or_default();
    match passed.as_secs() {
        0 => "now".to_owned(),
        _ => format!("{} ago", duration_text(passed)),
    }
}

/// An enum as it stands on the wire: `on`, `timed_out`.
fn wire_word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(_) => "?".to_owned(),
    }
}

/// What the profile changed about a request, for stderr.
fn print_notices(notices: &[String]) {
    for notice in notices {
        eprintln!("boxwood: {}", crate::printable::printable(notice));
    }
}

/// Tells a command on a terminal which one it is, unless the person did.
fn pass_term(spec: &mut boxwood_api::SpecRequest) {
    if let Ok(term) = std::env::var("TERM") {
        spec.env.entry("TERM".to_owned()).or_insert(term);
    }
}
