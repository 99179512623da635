//! Hosting without boxes: little servers over pipes, started when somebody needs them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use boxwood_api::{McpPhase, McpServerName};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::super::behind::{Behind, Child, House, How, Standing};
use super::super::{Gateway, GatewaySettings};
use super::peer::{self, Facts};
use crate::hosting::HostingError;
use crate::wire::{Connection, GreetAs, Greeting, Hears, ProtocolLog, WireLimits, greet};

const DEADLINE: Duration = Duration::from_secs(10);

pub(super) struct Small {
    servers: BTreeMap<McpServerName, Arc<Kept>>,
    changes: watch::Sender<u64>,
}

/// One server, between its runs.
pub(super) struct Kept {
    name: McpServerName,
    pub(super) facts: Facts,
    main: Mutex<Option<Arc<Run>>>,
    children: Arc<AtomicUsize>,
    most_children: usize,
    /// It does not start any more.
    pub(super) is_broken: std::sync::atomic::AtomicBool,
}

struct Run {
    kept: Arc<Kept>,
    connection: Connection,
    greeting: Arc<Greeting>,
}

pub(super) fn named(name: &str) -> McpServerName {
    McpServerName::new(name).expect("a name")
}

impl Small {
    pub(super) fn with(names: &[&str]) -> Arc<Self> {
        let kept = |name: &&str| {
            let kept = Kept {
                name: named(name),
                facts: Facts::default(),
                main: Mutex::default(),
                children: Arc::default(),
                most_children: 2,
                is_broken: false.into(),
            };
            (named(name), Arc::new(kept))
        };
        Arc::new(Self {
            servers: names.iter().map(kept).collect(),
            changes: watch::channel(0).0,
        })
    }

    pub(super) fn gateway(self: &Arc<Self>) -> Gateway {
        self.gateway_with(GatewaySettings::default())
    }

    pub(super) fn gateway_with(self: &Arc<Self>, settings: GatewaySettings) -> Gateway {
        let house: Arc<Self> = Arc::clone(self);
        Gateway::over(house, settings)
    }

    pub(super) fn kept(&self, name: &str) -> &Arc<Kept> {
        &self.servers[&named(name)]
    }

    pub(super) fn facts(&self, name: &str) -> &Facts {
        &self.kept(name).facts
    }

    pub(super) fn children(&self, name: &str) -> usize {
        self.kept(name).children.load(Ordering::SeqCst)
    }
}

impl Kept {
    fn running(&self) -> Option<Arc<Run>> {
        let main = self.main.lock().expect("lock").clone();
        main.filter(|run| !run.connection.is_ended())
    }

    fn connect(&self) -> Connection {
        let pipe = peer::start(self.name.as_str(), &self.facts);
        let log = Arc::new(ProtocolLog::default());
        Connection::open(Box::new(pipe), WireLimits::default(), log)
    }
}

impl House for Small {
    fn names(&self) -> Vec<McpServerName> {
        self.servers.keys().cloned().collect()
    }

    fn server<'a>(
        &'a self,
        name: &'a McpServerName,
    ) -> BoxFuture<'a, Result<Arc<dyn Behind>, HostingError>> {
        async move {
            let kept = self
                .servers
                .get(name)
                .ok_or_else(|| HostingError::NotFound {
                    name: name.to_string(),
                })?;
            if kept.is_broken.load(Ordering::SeqCst) {
                return Err(HostingError::Failed {
                    phase: McpPhase::McpInit,
                    message: "it said nothing".to_owned(),
                    hint: Some("look at its log".to_owned()),
                });
            }
            if let Some(run) = kept.running() {
                return Ok(run as Arc<dyn Behind>);
            }
            let connection = kept.connect();
            let greeting = greet(&connection, &GreetAs::boxwood(), DEADLINE).await;
            let run = Arc::new(Run {
                kept: Arc::clone(kept),
                connection,
                greeting: Arc::new(greeting.expect("a greeting")),
            });
            *kept.main.lock().expect("lock") = Some(Arc::clone(&run));
            self.changes.send_modify(|count| *count += 1);
            Ok(run as Arc<dyn Behind>)
        }
        .boxed()
    }

    fn connected(&self, name: &McpServerName) -> Option<Arc<dyn Behind>> {
        let run = self.servers.get(name)?.running()?;
        Some(run as Arc<dyn Behind>)
    }

    fn standing(&self, name: &McpServerName) -> Standing {
        let kept = self.servers.get(name);
        let is_broken = kept.is_none_or(|kept| kept.is_broken.load(Ordering::SeqCst));
        let how = match kept.and_then(|kept| kept.running()) {
            Some(run) => How::Connected(run.connection.id()),
            None if is_broken => How::Away,
            None => How::Resting,
        };
        Standing {
            how,
            edition: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Behind for Run {
    fn name(&self) -> &McpServerName {
        &self.kept.name
    }

    fn admits(&self, tool: &str) -> bool {
        tool != "secret"
    }

    fn admits_all(&self) -> bool {
        false
    }

    fn greeting(&self) -> Arc<Greeting> {
        Arc::clone(&self.greeting)
    }

    fn main(&self) -> Connection {
        self.connection.clone()
    }

    fn modern(&self) -> BoxFuture<'_, Result<Option<(Connection, Arc<Greeting>)>, HostingError>> {
        async { Ok(None) }.boxed()
    }

    fn own(&self, initialize: Box<RawValue>) -> BoxFuture<'_, Result<Child, HostingError>> {
        async move {
            let children = &self.kept.children;
            if children.load(Ordering::SeqCst) >= self.kept.most_children {
                return Err(HostingError::Full {
                    message: "too many".to_owned(),
                });
            }
            children.fetch_add(1, Ordering::SeqCst);
            let counted = Counted(Arc::clone(children));
            let connection = self.kept.connect();
            let inbound = connection.inbound(Hears::Everything);
            let greeting = greet(&connection, &GreetAs::client(initialize), DEADLINE).await;
            Ok(Child {
                connection,
                greeting: Arc::new(greeting.expect("a greeting")),
                inbound,
                _keep: Box::new(counted),
            })
        }
        .boxed()
    }
}
