//! Hosting without boxes: little servers at the other end of pipes, started when somebody needs them.

mod facts;
mod pipe;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use boxwood_api::{McpPhase, McpServerName};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::watch;

pub(super) use self::facts::Facts;
pub(super) use self::pipe::{Ends, Pipe, pipe};
use super::behind::{Behind, Child, House, How, Standing};
use crate::hosting::HostingError;
use crate::wire::{Connection, GreetAs, Greeting, Hears, ProtocolLog, WireLimits, discover, greet};

const DEADLINE: Duration = Duration::from_secs(10);

/// A kind of little servers.
pub(super) trait Kind: Copy + Send + Sync + 'static {
    /// Processes that clients of one server may have for themselves.
    const MOST_OWN: usize;

    /// Begins the server's `main` process, its `modern` one or one that is a client's `own`.
    fn start(self, server: &McpServerName, process: &'static str, facts: &Facts) -> Pipe;

    fn is_modern(self) -> bool;
}

pub(super) struct Village<K> {
    servers: BTreeMap<McpServerName, Arc<Home<K>>>,
    changes: watch::Sender<u64>,
}

/// One server, between its runs.
pub(super) struct Home<K> {
    name: McpServerName,
    kind: K,
    facts: Facts,
    run: Mutex<Option<Arc<Run<K>>>>,
    children: Arc<AtomicUsize>,
    /// It does not start any more.
    pub(super) is_gone: AtomicBool,
    /// It never gives a client a process of its own.
    pub(super) is_slow: AtomicBool,
    /// Its process of the stateless era is there, and not given to anybody yet.
    pub(super) is_late: AtomicBool,
}

struct Run<K> {
    home: Arc<Home<K>>,
    connection: Connection,
    greeting: Arc<Greeting>,
    modern: tokio::sync::Mutex<Option<(Connection, Arc<Greeting>)>>,
}

pub(super) fn named(name: &str) -> McpServerName {
    McpServerName::new(name).expect("a legal name")
}

impl<K: Kind> Village<K> {
    pub(super) fn of(servers: impl IntoIterator<Item = (McpServerName, K)>) -> Arc<Self> {
        let homes = servers.into_iter().map(|(name, kind)| {
            let home = Home {
                name: name.clone(),
                kind,
                facts: Facts::default(),
                run: Mutex::default(),
                children: Arc::default(),
                is_gone: AtomicBool::new(false),
                is_slow: AtomicBool::new(false),
                is_late: AtomicBool::new(false),
            };
            (name, Arc::new(home))
        });
        Arc::new(Self {
            servers: homes.collect(),
            changes: watch::channel(0).0,
        })
    }

    pub(super) fn home(&self, name: &str) -> &Arc<Home<K>> {
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
        let run = home.run.lock().expect("lock").take();
        if let Some(run) = run {
            run.connection.close();
        }
        self.changes.send_modify(|count| *count += 1);
    }
}

impl<K: Kind> Home<K> {
    fn running(&self) -> Option<Arc<Run<K>>> {
        let run = self.run.lock().expect("lock").clone();
        run.filter(|run| !run.connection.is_ended())
    }

    fn connect(&self, process: &'static str) -> Connection {
        let pipe = self.kind.start(&self.name, process, &self.facts);
        let log = Arc::new(ProtocolLog::default());
        Connection::open(Box::new(pipe), WireLimits::default(), log)
    }
}

impl<K: Kind> House for Village<K> {
    fn names(&self) -> Vec<McpServerName> {
        self.servers.keys().cloned().collect()
    }

    fn server<'a>(
        &'a self,
        name: &'a McpServerName,
    ) -> BoxFuture<'a, Result<Arc<dyn Behind>, HostingError>> {
        async move {
            let home = self
                .servers
                .get(name)
                .ok_or_else(|| HostingError::NotFound {
                    name: name.to_string(),
                })?;
            if home.is_gone.load(Ordering::SeqCst) {
                return Err(HostingError::Failed {
                    phase: McpPhase::McpInit,
                    message: "it said nothing".to_owned(),
                    hint: Some("look at its log".to_owned()),
                });
            }
            if let Some(run) = home.running() {
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
            *home.run.lock().expect("lock") = Some(Arc::clone(&run));
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
        let home = self.servers.get(name);
        let is_gone = home.is_none_or(|home| home.is_gone.load(Ordering::SeqCst));
        let how = match home.and_then(|home| home.running()) {
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

impl<K: Kind> Behind for Run<K> {
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
            if !self.home.kind.is_modern() {
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
            if children.load(Ordering::SeqCst) >= K::MOST_OWN {
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
