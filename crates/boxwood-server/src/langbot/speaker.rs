//! Who is speaking on a connection.

use std::sync::Arc;

use serde_json::Value;

use super::conversation::Request;
use super::{Fault, june, today};
use crate::http::App;

pub(crate) enum Speaker {
    June,
    Today(today::Caller),
}

/// The longest message that June's client takes.
const JUNE_LIMIT: usize = 1024 * 1024;
const TODAY_LIMIT: usize = 16 * 1024 * 1024;

impl Speaker {
    pub(super) async fn answer(&self, app: &Arc<App>, request: Request) -> Result<Value, Fault> {
        match self {
            Self::June => june::answer(app, request).await,
            Self::Today(caller) => caller.answer(app, request).await,
        }
    }

    pub(super) fn longest_answer(&self) -> usize {
        match self {
            Self::June => JUNE_LIMIT,
            Self::Today(_) => TODAY_LIMIT,
        }
    }
}
