//! Hosting without boxes: little servers at the other end of pipes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use boxwood_api::{McpPhase, McpServerName};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::peer::{Facts, Knows, start};
use crate::gateway::GatewaySettings;
use crate::gateway::aggregate::Aggregate;
use crate::gateway::behind::{Behind, Child, House, How, Standing};
use crate::gateway::budget::Budget;
use crate::gateway::hub::Hubs;
use crate::gateway::modern::Modern;
use crate::hosting::HostingError;
use crate::wire::{Connection, GreetAs, Greeting, Hears, ProtocolLog, WireLimits, discover, greet};

const DEADLINE: Duration = Duration::from_secs(10);

pub(super) struct Village {
    servers: BTreeMap<McpServerName, Arc<Home>>,
    changes: watch::Sender<u64>,
}

pub(super) struct Home {
    name: McpServerName,
    knows: Knows,
    pub(super) facts: Facts,
    run: Mutex<Option<Arc<Run>>>,
    children: Arc<AtomicUsize>,
    pub(super) is_gone: AtomicBool,
    /// It never gives a client a process of its own.
    pub(super) is_slow: AtomicBool,
    /// Its process of the stateless era is there, and not given to anybody yet.
    pub(super) is_late: AtomicBool,
}

struct Run {
    home: Arc<Home>,
    connection: Connection,
    greeting: Arc<Greeting>,
    modern: tokio::sync::Mutex<Option<(Connection, Arc<Greeting>)>>,
}

pub(super) fn named(name: &str) -> McpServerName {
    McpServerName::new(name).expect("a legal name")
}

impl Village {
    pub(super) fn with(servers: &[(&str, Knows)]) -> Arc<Self> {
        let homes = servers.iter().map(|(name, knows)| {
            let home = Home {
                name: named(name),
                knows: *knows,
                facts: Facts::default(),
                run: Mutex::default(),
                children: Arc::default(),
                is_gone: AtomicBool::new(false),
                is_slow: AtomicBool::new(false),
                is_late: AtomicBool::new(false),
            };
            (named(name), Arc::new(home))
        });
        Arc::new(Self {
            servers: homes.collect(),
            changes: watch::channel(0).0,
        })
    }

    pub(super) fn modern(self: &Arc<Self>) -> Modern {
        self.modern_with(&GatewaySettings::default())
    }

    pub(super) fn modern_with(self: &Arc<Self>, settings: &GatewaySettings) -> Modern {
        let all = self.all();
        let hubs = Arc::new(Hubs::new(Arc::clone(all.house())));
        let budget = Budget::new(settings.max_unread);
        Modern::new(&all, &hubs, &budget, settings)
    }

    pub(super) fn all(self: &Arc<Self>) -> Aggregate {
        Aggregate::new(Arc::<Self>::clone(self))
    }

    pub(super) fn home(&self, name: &str) -> &Arc<Home> {
        &self.servers[&named(name)]
    }

    pub(super) fn facts(&self, name: &str) -> &Facts {
        &self.home(name).facts
    }

    pub(super) fn children(&self, name: &str) -> usize {
        self.home(name).children.load(Ordering::SeqCst)
    }

    /// Its process ends, and whether another comes is decided here.
    pub(super) fn end(&self, name: &str, is_gone: bool) {
        let home = self.home(name);
        home.is_gone.store(is_gone, Ordering::SeqCst);
        if let Some(run) = home.run().take() {
            run.connection.close();
        }
        self.changes.send_modify(|count| *count += 1);
    }
}

impl Home {
    fn run(&self) -> MutexGuard<'_, Option<Arc<Run>>> {
        self.run.lock().expect("lock")
    }

    fn connect(&self, process: &str) -> Connection {
        let pipe = start(process, self.knows, &self.facts);
        Connection::open(
            Box::new(pipe),
            WireLimits::default(),
            Arc::new(ProtocolLog::default()),
        )
    }
}

impl House for Village {
    fn names(&self) -> Vec<McpServerName> {
        self.servers.keys().cloned().collect()
    }

    fn server<'a>(
        &'a self,
        name: &'a McpServerName,
    ) -> BoxFuture<'a, Result<Arc<dyn Behind>, HostingError>> {
        async move {
            let name_text = name.to_string();
            let home = self
                .servers
                .get(name)
                .ok_or(HostingError::NotFound { name: name_text })?;
            if home.is_gone.load(Ordering::SeqCst) {
                return Err(HostingError::Failed {
                    phase: McpPhase::McpInit,
                    message: "it said nothing".to_owned(),
                    hint: None,
                });
            }
            if let Some(run) = home.run().clone() {
                return Ok(run as Arc<dyn Behind>);
            }
            let connection = home.connect("main");
            let greeting = greet(&connection, &GreetAs::boxwood(), DEADLINE).await;
            let run = Arc::new(Run {
                home: Arc::clone(home),
                connection,
                greeting: Arc::new(greeting.expect("a greeting")),
                modern: tokio::sync::Mutex::default(),
            });
            *home.run() = Some(Arc::clone(&run));
            self.changes.send_modify(|count| *count += 1);
            Ok(run as Arc<dyn Behind>)
        }
        .boxed()
    }

    fn connected(&self, name: &McpServerName) -> Option<Arc<dyn Behind>> {
        let run = self.servers.get(name)?.run().clone()?;
        Some(run as Arc<dyn Behind>)
    }

    fn standing(&self, name: &McpServerName) -> Standing {
        let home = self.servers.get(name);
        let is_gone = home.is_none_or(|home| home.is_gone.load(Ordering::SeqCst));
        let how = match home.and_then(|home| home.run().clone()) {
            Some(run) => How::Connected(run.connection.id()),
            None if is_gone => How::Away,
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
        &self.home.name
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
        async {
            if self.home.knows == Knows::Sessions {
                return Ok(None);
            }
            let mut modern = self.modern.lock().await;
            if modern.is_none() {
                let connection = self.home.connect("modern");
                let greeting = discover(&connection, &GreetAs::boxwood(), DEADLINE).await;
                while self.home.is_late.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                *modern = Some((connection, Arc::new(greeting.expect("a greeting"))));
            }
            Ok(modern.clone())
        }
        .boxed()
    }

    fn own(&self, initialize: Box<RawValue>) -> BoxFuture<'_, Result<Child, HostingError>> {
        async move {
            if self.home.is_slow.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            let children = &self.home.children;
            if children.load(Ordering::SeqCst) >= 3 {
                let message = "too many".to_owned();
                return Err(HostingError::Full { message });
            }
            children.fetch_add(1, Ordering::SeqCst);
            let counted = Counted(Arc::clone(children));
            let connection = self.home.connect("own");
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
