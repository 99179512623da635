//! All servers, for a client with a session that can be asked.
//!
//! Comes in: requests for some server. Goes out: to that server on a process that is this client's, started
//! with the first call it is needed for; its questions under ids of our own, since servers number theirs
//! alike. Lists and news come from the processes that everybody shares. No server waits for another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use boxwood_api::McpServerName;
use futures_util::future::join_all;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::aggregate::Aggregate;
use super::behind::{Behind, Child};
use super::bridge::Bridge;
use super::desk::Desk;
use super::level::Level;
use super::names::split_uri;
use super::outward::outward_news;
use super::params;
use super::questions::{CANCELLED, Patience};
use super::refusal::Refusal;
use super::telling::{Done, Telling, Wish, Wished, subscribe};
use crate::hosting::HostingError;
use crate::wire::{Connection, Era, Greeting, Heard, Inbound, Kind, Message};

pub(crate) struct Company {
    all: Aggregate,
    initialize: Box<RawValue>,
    places: Mutex<HashMap<McpServerName, Arc<Place>>>,
    desk: Arc<Desk>,
    wished: Wished,
}

/// For one server.
#[derive(Default)]
struct Place {
    /// Held while its process starts.
    starting: tokio::sync::Mutex<()>,
    member: Mutex<Option<Member>>,
}

/// How one server is spoken to.
#[derive(Clone)]
pub(crate) enum Voice {
    Own(Connection),
    Bridged(Arc<Bridge>),
}

struct Member {
    /// Another process of the server's is another life.
    main: u64,
    voice: Voice,
    _hearing: AbortOnDropHandle<()>,
    /// What the client wished for before the process was there.
    _telling: Option<AbortOnDropHandle<()>>,
    _keep: Option<Box<dyn Send + Sync>>,
}

impl Member {
    fn is_over(&self, main: u64) -> bool {
        let has_ended = match &self.voice {
            Voice::Own(connection) => connection.is_ended(),
            Voice::Bridged(_) => false,
        };
        has_ended || self.main != main
    }
}

impl Company {
    /// `initialize` are the client's own parameters. What comes second is for the client.
    pub(crate) fn new(all: &Aggregate, initialize: &RawValue) -> (Self, mpsc::Receiver<Message>) {
        let (desk, asked) = Desk::new();
        let company = Self {
            all: all.clone(),
            initialize: initialize.to_owned(),
            places: Mutex::default(),
            desk: Arc::new(desk),
            wished: Wished::default(),
        };
        (company, asked)
    }

    pub(crate) fn all(&self) -> &Aggregate {
        &self.all
    }

    /// This client's way to the server. `None` when there is no room for another process.
    pub(crate) async fn voice(&self, behind: &Arc<dyn Behind>) -> Result<Option<Voice>, Refusal> {
        let main = behind.main().id();
        let place = self.place(behind.name());
        let starting = place.starting.lock().await;
        if let Some(voice) = place.voice(main) {
            return Ok(Some(voice));
        }
        let over = lock(&place.member).take();
        drop(over);
        let (begun, greeting) = match self.member(behind, main).await {
            Ok(begun) => begun,
            // Better served without being asked than not at all.
            Err(HostingError::Full { .. }) => return Ok(None),
            Err(error) => return Err(Refusal::from(&error)),
        };
        let voice = begun.voice.clone();
        let told = {
            let mut member = lock(&place.member);
            // From here on whoever wishes something finds the process; what was wished before is told now,
            // also when whoever calls leaves.
            let telling = self.begin_telling(&voice, behind.name(), greeting);
            let (telling, told) = telling.unzip();
            *member = Some(Member {
                _telling: telling,
                ..begun
            });
            told
        };
        drop(starting);
        if let Some(told) = told {
            told.soon().await;
        }
        Ok(Some(voice))
    }

    fn begin_telling(
        &self,
        voice: &Voice,
        server: &McpServerName,
        greeting: Option<Arc<Greeting>>,
    ) -> Option<(AbortOnDropHandle<()>, Done)> {
        let (Voice::Own(connection), Some(greeting)) = (voice, greeting) else {
            return None;
        };
        let telling = Telling {
            wished: self.wished.clone(),
            connection: connection.clone(),
            greeting,
            server: Some(server.clone()),
        };
        Some(telling.begin())
    }

    fn place(&self, server: &McpServerName) -> Arc<Place> {
        let mut places = lock(&self.places);
        if !places.contains_key(server) {
            let names = self.all.house().names();
            places.retain(|name, _| names.contains(name));
        }
        Arc::clone(places.entry(server.clone()).or_default())
    }

    async fn member(
        &self,
        behind: &Arc<dyn Behind>,
        main: u64,
    ) -> Result<(Member, Option<Arc<Greeting>>), HostingError> {
        let desk = Arc::clone(&self.desk);
        if behind.greeting().era == Era::Modern {
            let (bridge, asked) = Bridge::new(&self.initialize);
            let voice = Voice::Bridged(Arc::new(bridge));
            let hearing = tokio::spawn(hear_bridge(desk, voice.clone(), asked));
            let member = Member {
                main,
                voice,
                _hearing: AbortOnDropHandle::new(hearing),
                _telling: None,
                _keep: None,
            };
            return Ok((member, None));
        }
        let Child {
            connection,
            greeting,
            inbound,
            _keep: keep,
        } = behind.own(self.initialize.clone()).await?;
        let voice = Voice::Own(connection);
        let hearing = Hearing {
            asking: Asking {
                desk,
                voice: voice.clone(),
            },
            wished: self.wished.clone(),
            server: behind.name().clone(),
        };
        let member = Member {
            main,
            voice,
            _hearing: AbortOnDropHandle::new(tokio::spawn(hearing.hear(inbound))),
            _telling: None,
            _keep: Some(keep),
        };
        Ok((member, Some(greeting)))
    }

    /// The client's answer to a question.
    pub(crate) async fn respond(&self, answer: Message) {
        self.desk.respond(answer).await;
    }

    pub(crate) fn respond_now(&self, answer: Message) {
        self.desk.respond_now(answer);
    }

    pub(crate) async fn set_level(&self, level: Level) {
        self.wished.remember(Wish::Level(level));
        let processes = self.processes();
        join_all(processes.iter().map(|process| level.set_on(process))).await;
    }

    /// A resource that a call on a process of this client's changes is told of by that process alone.
    pub(crate) async fn subscribe(&self, uri: &str, is_wanted: bool) {
        let method = if is_wanted {
            self.wished.remember(Wish::Subscribe(uri.to_owned()));
            "resources/subscribe"
        } else {
            self.wished.remember(Wish::Unsubscribe(uri.to_owned()));
            "resources/unsubscribe"
        };
        let Some((server, original)) = split_uri(uri) else {
            return;
        };
        let place = lock(&self.places).get(&server).cloned();
        if let Some(connection) = place.and_then(|place| place.process()) {
            subscribe(&connection, method, original).await;
        }
    }

    /// What the client says of itself, such as that its roots are others now.
    pub(crate) async fn tell(&self, message: &Message) {
        let processes = self.processes();
        // One that is gone needs no news.
        join_all(processes.iter().map(|it| it.notify(message.clone()))).await;
    }

    fn processes(&self) -> Vec<Connection> {
        let places = lock(&self.places);
        places
            .values()
            .filter_map(|place| place.process())
            .collect()
    }
}

impl Place {
    fn voice(&self, main: u64) -> Option<Voice> {
        let member = lock(&self.member);
        let member = member.as_ref().filter(|member| !member.is_over(main));
        member.map(|member| member.voice.clone())
    }

    /// One that starts is told everything when it has started.
    fn process(&self) -> Option<Connection> {
        match &lock(&self.member).as_ref()?.voice {
            Voice::Own(connection) => Some(connection.clone()),
            Voice::Bridged(_) => None,
        }
    }
}

async fn hear_bridge(desk: Arc<Desk>, voice: Voice, mut asked: mpsc::Receiver<Message>) {
    let asking = Asking { desk, voice };
    while let Some(question) = asked.recv().await {
        if question.kind() == Kind::Request {
            asking.desk.ask(&asking.voice, &question).await;
        } else if let Some(id) = params::get(question.params(), "requestId") {
            asking.desk.withdraw(&asking.voice, &id).await;
        }
    }
}

/// However it ends, nobody waits for what was asked.
struct Asking {
    desk: Arc<Desk>,
    voice: Voice,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.desk.forget(&self.voice);
    }
}

/// Listens to one process of the client's.
struct Hearing {
    asking: Asking,
    wished: Wished,
    server: McpServerName,
}

impl Hearing {
    async fn hear(self, mut inbound: Inbound) {
        let Asking { desk, voice } = &self.asking;
        let mut asked: Patience<Box<RawValue>> = Patience::default();
        loop {
            tokio::select! {
                biased;
                heard = inbound.next() => match heard {
                    Heard::Message(message) if message.kind() == Kind::Request => {
                        if let Some(ours) = desk.ask(voice, &message).await {
                            asked.begin(ours, |ours| desk.is_open(ours));
                        }
                    }
                    Heard::Message(message) => self.news(&message).await,
                    Heard::Missed(_) => {}
                    Heard::Ended => return,
                },
                ours = asked.over() => desk.give_up(&ours).await,
            }
        }
    }

    async fn news(&self, message: &Message) {
        let Asking { desk, voice } = &self.asking;
        let is_wanted = match message.method() {
            Some(CANCELLED) => {
                if let Some(id) = params::get(message.params(), "requestId") {
                    desk.withdraw(voice, &id).await;
                }
                false
            }
            Some("notifications/message") => {
                let least = self.wished.lock().level.unwrap_or(Level::Info);
                Level::of(message) >= least
            }
            Some("notifications/resources/updated") => {
                let news = outward_news(&self.server, message);
                let uri = params::text(news.params(), "uri");
                uri.is_some_and(|uri| self.wished.lock().uris.contains(&uri))
            }
            _ => false,
        };
        if is_wanted {
            desk.tell(outward_news(&self.server, message));
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
