//! What a client of the era with sessions speaks to: one server, or all of them.
//!
//! Comes in: requests as the client wrote them. Goes out: answers, without the tools that are kept back.
//! Never here: sessions, HTTP, and the stateless era.

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::McpServerName;
use futures_util::future::BoxFuture;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::Target;
use super::aggregate::{self, Aggregate, Asking};
use super::behind::{Behind, House};
use super::bridge::Bridge;
use super::company::{Company, Voice};
use super::json::{object, raw};
use super::level::Level;
use super::lists::{Kind, filtered};
use super::refusal::Refusal;
use super::translate::{initialized, may_need_input};
use super::versions::NEWEST;
use crate::hosting::HostingError;
use crate::wire::{Ask, CallError, Connection, Era, Greeting, Message, Object};

/// Several pings have gone unanswered by then.
const HANGING: Duration = Duration::from_mins(2);

#[derive(Clone)]
pub(crate) enum Upstream {
    /// The process that is shared.
    One(Arc<dyn Behind>),
    /// A process of this client's.
    Alone {
        behind: Arc<dyn Behind>,
        connection: Connection,
        greeting: Arc<Greeting>,
    },
    /// A server of the stateless era, on behalf of a client that can be asked.
    Bridged {
        house: Arc<dyn House>,
        name: McpServerName,
        greeting: Arc<Greeting>,
        bridge: Arc<Bridge>,
    },
    All(Aggregate),
    /// All servers, each of which may ask this client.
    Company(Arc<Company>),
}

impl Upstream {
    /// Waits for the one server, which it may have to start.
    pub(crate) async fn find(all: &Aggregate, target: &Target) -> Result<Self, HostingError> {
        match target {
            Target::One(name) => Ok(Self::One(all.house().server(name).await?)),
            Target::All => Ok(Self::All(all.clone())),
        }
    }

    pub(crate) fn alone(
        behind: Arc<dyn Behind>,
        connection: Connection,
        greeting: Arc<Greeting>,
    ) -> Self {
        Self::Alone {
            behind,
            connection,
            greeting,
        }
    }

    /// For a server that knows the stateless era alone: what it asks in its results reaches the client as
    /// requests. Answer them with [`respond`](Self::respond).
    pub(crate) fn bridged(
        house: &Arc<dyn House>,
        behind: &dyn Behind,
        initialize: &RawValue,
    ) -> (Self, mpsc::Receiver<Message>) {
        let (bridge, asked) = Bridge::new(initialize);
        let bridged = Self::Bridged {
            house: Arc::clone(house),
            name: behind.name().clone(),
            greeting: behind.greeting(),
            bridge: Arc::new(bridge),
        };
        (bridged, asked)
    }

    /// All servers, for a client that can be asked. What comes second is for the client.
    pub(crate) fn company(
        all: &Aggregate,
        initialize: &RawValue,
    ) -> (Self, mpsc::Receiver<Message>) {
        let (company, asked) = Company::new(all, initialize);
        (Self::Company(Arc::new(company)), asked)
    }

    /// The one process, where it is known before a request.
    pub(crate) fn behind(&self) -> Option<&Arc<dyn Behind>> {
        match self {
            Self::One(behind) | Self::Alone { behind, .. } => Some(behind),
            Self::Bridged { .. } | Self::All(_) | Self::Company(_) => None,
        }
    }

    /// The result of `initialize`.
    pub(crate) fn greeting(&self) -> Box<RawValue> {
        match self {
            Self::One(behind) => initialized(&behind.greeting()),
            Self::Alone { greeting, .. } | Self::Bridged { greeting, .. } => initialized(greeting),
            Self::All(_) | Self::Company(_) => {
                let mut capabilities = aggregate::capabilities();
                capabilities["logging"] = json!({});
                raw(&json!({
                    "protocolVersion": NEWEST,
                    "capabilities": capabilities,
                    "serverInfo": aggregate::server_info(),
                    "instructions": aggregate::INSTRUCTIONS,
                }))
            }
        }
    }

    /// With everything that stands in the client's request.
    pub(crate) async fn request(&self, request: Message, how: Ask) -> Result<Message, Refusal> {
        match self {
            Self::One(behind) => {
                let main = behind.main();
                let on = Process::shared(&main, behind.greeting().era);
                ask(behind.as_ref(), on, request, how).await
            }
            Self::Alone {
                behind,
                connection,
                greeting,
            } => {
                let on = Process::of_client(connection, greeting.era);
                ask(behind.as_ref(), on, request, how).await
            }
            Self::Bridged {
                house,
                name,
                bridge,
                ..
            } => {
                // Since the last request it may have rested, or ended.
                let behind = house.server(name).await;
                let behind = behind.map_err(|error| Refusal::from(&error))?;
                if behind.greeting().era == Era::Legacy {
                    // It is another server now. Better served without being asked than not at all.
                    let main = behind.main();
                    let on = Process::shared(&main, Era::Legacy);
                    return ask(behind.as_ref(), on, request, how).await;
                }
                let method = request.method().unwrap_or_default();
                admitted(behind.as_ref(), method, request.params())?;
                let answer = bridge.request(behind.as_ref(), &request, how).await?;
                Ok(seen(behind.as_ref(), method, answer))
            }
            Self::All(all) => {
                let shared = Shared {
                    request: &request,
                    how,
                    company: None,
                };
                let method = request.method().unwrap_or_default();
                all.request(&shared, method, request.params()).await
            }
            Self::Company(company) => {
                let shared = Shared {
                    request: &request,
                    how,
                    company: Some(company),
                };
                let method = request.method().unwrap_or_default();
                let all = company.all();
                all.request(&shared, method, request.params()).await
            }
        }
    }

    /// The answer to what the server asked.
    pub(crate) async fn respond(&self, message: Message) -> Result<(), Refusal> {
        match self {
            Self::Alone {
                behind, connection, ..
            } => {
                let said = connection.respond(message).await;
                said.map_err(|error| Refusal::unanswered(&error, behind.name()))
            }
            Self::Bridged { bridge, .. } => {
                bridge.respond(&message);
                Ok(())
            }
            Self::Company(company) => {
                company.respond(message).await;
                Ok(())
            }
            Self::One(_) | Self::All(_) => Ok(()),
        }
    }

    /// The same without waiting for the server, which may do without it.
    pub(crate) fn respond_now(&self, message: Message) {
        match self {
            Self::Alone { connection, .. } => connection.respond_now(&message),
            Self::Bridged { bridge, .. } => bridge.respond(&message),
            Self::Company(company) => company.respond_now(message),
            Self::One(_) | Self::All(_) => {}
        }
    }

    /// How much a client of all servers wants to hear, for the processes that are its own.
    pub(crate) async fn set_level(&self, level: &str) {
        if let (Self::Company(company), Some(level)) = (self, Level::parse(level)) {
            company.set_level(level).await;
        }
    }

    /// That a client of all servers wants to hear of a resource, or not any more.
    pub(crate) async fn subscribe(&self, uri: &str, is_wanted: bool) {
        if let Self::Company(company) = self {
            company.subscribe(uri, is_wanted).await;
        }
    }

    /// What a client of all servers says of itself, for the processes that are its own.
    pub(crate) async fn tell(&self, message: &Message) {
        if let Self::Company(company) = self {
            company.tell(message).await;
        }
    }
}

/// All servers, each by its shared process, or where it may have questions by this client's own.
struct Shared<'r> {
    request: &'r Message,
    how: Ask,
    company: Option<&'r Company>,
}

impl Asking for Shared<'_> {
    fn ask<'a>(
        &'a self,
        behind: Arc<dyn Behind>,
        method: &'a str,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'a, Result<Message, Refusal>> {
        let how = Ask {
            // Whoever lists everything uses no server: one that nobody calls may rest.
            is_ours: Kind::of(method).is_some(),
            ..self.how.clone()
        };
        Box::pin(async move {
            let request = instead(self.request, method, params);
            let voice = match self.company.filter(|_| may_need_input(method)) {
                Some(company) => company.voice(&behind).await?,
                None => None,
            };
            match voice {
                Some(Voice::Own(connection)) => {
                    let on = Process::of_client(&connection, Era::Legacy);
                    ask(behind.as_ref(), on, request, how).await
                }
                Some(Voice::Bridged(bridge)) => {
                    admitted(behind.as_ref(), method, request.params())?;
                    bridge.request(behind.as_ref(), &request, how).await
                }
                None => {
                    let main = behind.main();
                    let on = Process::shared(&main, behind.greeting().era);
                    ask(behind.as_ref(), on, request, how).await
                }
            }
        })
    }
}

/// The request with other parameters, or another one of the same client's.
pub(crate) fn instead(request: &Message, method: &str, params: Option<Box<RawValue>>) -> Message {
    if request.method() == Some(method) {
        return request.clone().with_params(params);
    }
    let id = request.id().map(ToOwned::to_owned);
    Message::request(id.unwrap_or_default(), method, params)
}

/// Where a request goes.
struct Process<'a> {
    connection: &'a Connection,
    era: Era,
    is_shared: bool,
}

impl<'a> Process<'a> {
    fn shared(connection: &'a Connection, era: Era) -> Self {
        Self {
            connection,
            era,
            is_shared: true,
        }
    }

    fn of_client(connection: &'a Connection, era: Era) -> Self {
        Self {
            is_shared: false,
            ..Self::shared(connection, era)
        }
    }

    /// The time for a call is over. One client's process that hangs is let go, so that the next call gets
    /// another; the shared one is hosting's business.
    fn timed_out(&self) {
        if !self.is_shared && self.connection.quiet_for() >= HANGING {
            self.connection.close();
        }
    }
}

/// One request of a client that has sessions, to one process.
async fn ask(
    behind: &dyn Behind,
    on: Process<'_>,
    request: Message,
    how: Ask,
) -> Result<Message, Refusal> {
    let method = request.method().unwrap_or_default().to_owned();
    admitted(behind, &method, request.params())?;
    let answer = if on.era == Era::Modern {
        Bridge::unaskable(behind, on.connection, &request, how).await?
    } else {
        let answer = on.connection.relay(request, how).await;
        if matches!(answer, Err(CallError::TimedOut { .. })) {
            on.timed_out();
        }
        answer.map_err(|error| Refusal::unanswered(&error, behind.name()))?
    };
    Ok(seen(behind, &method, answer))
}

/// A tool that is kept back looks like one that is not there.
pub(crate) fn admitted(
    behind: &dyn Behind,
    method: &str,
    params: Option<&RawValue>,
) -> Result<(), Refusal> {
    if method != "tools/call" || behind.admits_all() {
        return Ok(());
    }
    let params: Option<Object> = params.and_then(object);
    let name = params.and_then(|params| params.text("name"));
    let name =
        name.ok_or_else(|| Refusal::malformed("`params` must be an object with a text `name`"))?;
    if behind.admits(&name) {
        Ok(())
    } else {
        Err(Refusal::no_tool(&name))
    }
}

pub(crate) fn seen(behind: &dyn Behind, method: &str, answer: Message) -> Message {
    if method == "tools/list" {
        filtered(behind, answer)
    } else {
        answer
    }
}
