//! Hosted servers for MCP clients over HTTP, in both eras of the protocol.
//!
//! Comes in: a request that the daemon's guard has admitted, for one server or for all of them. Goes out:
//! what the server said, as it said it, with the ids the client knows. Never here: tokens, `Host` and
//! `Origin`, which were judged before, and how a server is run.

mod aggregate;
mod behind;
mod bridge;
mod bridged;
mod budget;
mod calls;
mod company;
mod desk;
mod envelope;
mod get;
mod greet;
mod headers;
mod hub;
mod incoming;
mod json;
mod level;
mod listen;
mod lists;
mod logs;
mod members;
mod mirrored;
mod modern;
mod names;
mod old_sse;
mod outbox;
mod outward;
mod own;
mod params;
mod post;
mod presence;
mod questions;
mod refusal;
mod remembered;
mod replays;
mod reply;
mod rounds;
mod schemas;
mod seats;
mod session;
mod shelf;
mod sse;
mod streams;
mod sweeping;
mod table;
mod telling;
mod translate;
mod upstream;
mod versions;
mod waiting;
mod web;
mod wishes;

#[cfg(test)]
mod eras;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod village;

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::McpServerName;
use bytes::Bytes;
use http::{Method, Request};

use self::aggregate::Aggregate;
use self::behind::House;
use self::budget::Budget;
use self::hub::Hubs;
use self::modern::Modern;
use self::table::Table;
use crate::hosting::Hosting;
use crate::http_server::Answer;

/// Which servers a client talks to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    One(McpServerName),
    /// Every server, with names that say whose each thing is.
    All,
}

#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// Bytes of one request.
    pub max_body: usize,
    /// A session that nobody uses ends after so long.
    pub session_idle: Duration,
    pub max_sessions: usize,
    /// A silent stream shows that it lives so often.
    pub keep_alive: Duration,
    /// No call goes on for longer.
    pub longest_call: Duration,
    /// Bytes that wait for clients to read them, of all together. One client has half of it at most.
    pub max_unread: usize,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            max_body: 16 * 1024 * 1024,
            session_idle: Duration::from_mins(30),
            max_sessions: 1000,
            keep_alive: Duration::from_secs(15),
            longest_call: Duration::from_hours(1),
            max_unread: 256 * 1024 * 1024,
        }
    }
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) settings: GatewaySettings,
    pub(crate) house: Arc<dyn House>,
    pub(crate) all: Aggregate,
    pub(crate) hubs: Arc<Hubs>,
    pub(crate) modern: Modern,
    pub(crate) sessions: Table,
    pub(crate) budget: Budget,
}

impl Gateway {
    pub fn new(hosting: Hosting, settings: GatewaySettings) -> Self {
        Self::over(Arc::new(hosting), settings)
    }

    pub(crate) fn over(house: Arc<dyn House>, settings: GatewaySettings) -> Self {
        let hubs = Arc::new(Hubs::new(Arc::clone(&house)));
        let all = Aggregate::new(Arc::clone(&house));
        let budget = Budget::new(settings.max_unread);
        let (most, idle) = (settings.max_sessions, settings.session_idle);
        let inner = Inner {
            modern: Modern::new(&all, &hubs, &budget, &settings),
            sessions: Table::new(most, idle, budget.clone()),
            settings,
            house,
            all,
            hubs,
            budget,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// `/mcp/{name}` and `/mcp/_all`, every method. `principal` is whose token it was; a session belongs to
    /// whoever began it.
    pub async fn answer(
        &self,
        target: Target,
        principal: Option<String>,
        request: Request<Bytes>,
    ) -> Answer {
        let (head, body) = request.into_parts();
        let asked = web::Asked {
            target,
            principal,
            head,
        };
        match asked.head.method {
            Method::POST => post::answer(&self.inner, asked, body).await,
            Method::GET => get::answer(&self.inner, asked, body).await,
            Method::DELETE => get::delete(&self.inner, asked, body).await,
            _ => web::not_allowed("GET, POST, DELETE"),
        }
    }

    /// `GET /mcp/{name}/sse`, of the first revision.
    pub async fn sse_open(
        &self,
        target: Target,
        principal: Option<String>,
        request: Request<Bytes>,
    ) -> Answer {
        let (head, _) = request.into_parts();
        let asked = web::Asked {
            target,
            principal,
            head,
        };
        old_sse::open(&self.inner, asked).await
    }

    /// `POST /mcp/{name}/messages`, of the first revision.
    pub async fn sse_message(
        &self,
        target: Target,
        principal: Option<String>,
        request: Request<Bytes>,
    ) -> Answer {
        let (head, body) = request.into_parts();
        let asked = web::Asked {
            target,
            principal,
            head,
        };
        old_sse::message(&self.inner, asked, &body).await
    }

    /// Ends every session, call and stream, and the processes they hold. Nothing begins any more.
    pub fn close(&self) {
        self.inner.sessions.close();
        self.inner.modern.close();
    }
}
