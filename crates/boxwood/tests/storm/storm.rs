//! Many sessions with their clients and load, and the daemons that serve them one after another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::ask::must;
use crate::instance::{Daemon, Instance};
use crate::load::{self, Tally, listed, output};
use crate::random::{Random, sessions};
use crate::relay::{Phase, Relay};
use crate::ticker::{self, Identity};

/// Clients receive all remaining output within this time after the last kill.
const FINISH_TIMEOUT: Duration = Duration::from_mins(1);

/// Sorted like the numbers.
pub(crate) fn session_name(number: usize) -> String {
    format!("s{number:03}")
}

/// The load does not use this many of the first sessions, because some of them are ended on purpose.
pub(crate) fn spared() -> usize {
    sessions() / 2
}

pub(crate) struct Storm<'a> {
    pub(crate) instance: &'a Instance,
    pub(crate) random: Random,
    /// Of every session that must survive.
    pub(crate) incarnations: BTreeMap<String, u64>,
    phase: watch::Sender<Phase>,
    relays: JoinSet<anyhow::Result<Relay>>,
    load: JoinSet<anyhow::Result<()>>,
    pub(crate) tally: Arc<Tally>,
    began: Instant,
    kills: u64,
    /// Sessions that are ended on purpose and whose clients have not failed yet.
    doomed: BTreeSet<String>,
}

impl<'a> Storm<'a> {
    /// Starts the first daemon, the sessions and their clients.
    pub(crate) async fn gather(
        instance: &'a Instance,
        mut random: Random,
    ) -> anyhow::Result<(Self, Daemon)> {
        let mut daemon = instance.start();
        daemon.ready().await?;
        let port = instance.port();
        let (phase, phases) = watch::channel(Phase::Storm);
        let mut relays = JoinSet::new();
        let mut incarnations = BTreeMap::new();
        for number in 0..sessions() {
            let name = session_name(number);
            let path = format!("/v1/sessions/{name}");
            let info = must(port, "POST", &path, Some(&json!({}))).await?;
            let incarnation = info["incarnation"].as_u64().context("an incarnation")?;
            incarnations.insert(name.clone(), incarnation);
            let path = format!("{path}/managed-process");
            must(port, "POST", &path, Some(&ticker::spec())).await?;
            let relay = Relay::new(port, name, random.fork());
            relays.spawn(relay.run(phases.clone()));
        }
        let tally = Arc::new(Tally::default());
        let used = incarnations.iter().skip(spared());
        let used: Vec<_> = used.map(|(name, it)| (name.clone(), *it)).collect();
        let load = load::begin(port, &used, &mut random, &phases, &tally);
        let storm = Self {
            instance,
            random,
            incarnations,
            phase,
            relays,
            load,
            tally,
            began: Instant::now(),
            kills: 0,
            doomed: BTreeSet::new(),
        };
        Ok((storm, daemon))
    }

    /// Kills this daemon after a random delay.
    pub(crate) async fn kill(&mut self, daemon: Daemon) -> anyhow::Result<()> {
        tokio::time::sleep(self.random.millis(5, 800)).await;
        self.kill_now(daemon).await
    }

    pub(crate) async fn kill_now(&mut self, daemon: Daemon) -> anyhow::Result<()> {
        daemon.kill().await?;
        self.kills += 1;
        self.check_clients()
    }

    /// Starts the next daemon. Sometimes kills others first, before they are ready.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Daemon> {
        self.next_by(&[]).await
    }

    /// The same, through another program that executes the daemon.
    pub(crate) async fn next_by(&mut self, before: &[String]) -> anyhow::Result<Daemon> {
        while self.random.one_in(4) {
            let daemon = self.instance.start_by(before);
            tokio::time::sleep(self.random.millis(0, 500)).await;
            self.kill_now(daemon).await?;
        }
        let mut daemon = self.instance.start_by(before);
        daemon.ready().await?;
        Ok(daemon)
    }

    /// Fails if a client or a part of the load has ended.
    pub(crate) fn check_clients(&mut self) -> anyhow::Result<()> {
        while let Some(ended) = self.relays.try_join_next() {
            self.relay_ended(ended?)?;
        }
        if let Some(ended) = self.load.try_join_next() {
            ended??;
            bail!("some load ended in the middle of the storm");
        }
        Ok(())
    }

    fn relay_ended(&mut self, ended: anyhow::Result<Relay>) -> anyhow::Result<()> {
        let error = match ended {
            Ok(relay) => bail!(
                "a relay ended in the middle of the storm: {:?}",
                relay.reader
            ),
            Err(error) => error,
        };
        let doomed = self.doomed.iter();
        let found = doomed.clone().find(|session| {
            // The context that the relay adds to its errors.
            error.to_string() == format!("session {session}")
        });
        match found.cloned() {
            Some(session) => {
                self.doomed.remove(&session);
                Ok(())
            }
            None => Err(error),
        }
    }

    /// Expects that this session ends.
    pub(crate) fn doom(&mut self, session: &str) {
        self.incarnations.remove(session);
        self.doomed.insert(session.to_owned());
    }

    /// Waits until the client of a doomed session has failed.
    pub(crate) async fn lost(&mut self, session: &str) -> anyhow::Result<()> {
        while self.doomed.contains(session) {
            let ended = tokio::time::timeout(FINISH_TIMEOUT, self.relays.join_next()).await;
            match ended.with_context(|| format!("no client noticed that {session} is gone"))? {
                Some(ended) => self.relay_ended(ended?)?,
                None => bail!("there are no relays"),
            }
        }
        Ok(())
    }

    /// After the last kill: waits for all output, and checks that all sessions and processes are the same as before.
    pub(crate) async fn finish(&mut self) -> anyhow::Result<()> {
        self.check_clients()?;
        self.phase.send_replace(Phase::Drain);
        while let Some(ended) = self.load.join_next().await {
            ended??;
        }
        let port = self.instance.port();
        self.tally.clear_up(port).await?;
        let mut identities = BTreeMap::new();
        let (mut lines, mut ticks, mut connections) = (0, 0, 0);
        loop {
            let next = tokio::time::timeout(FINISH_TIMEOUT, self.relays.join_next()).await;
            let Some(ended) = next.context("a relay did not receive its echoes")? else {
                break;
            };
            let relay = ended??;
            let identity = relay.reader.identity.clone().context("it never began")?;
            lines += relay.lines;
            ticks += relay.reader.ticks;
            connections += relay.connections;
            identities.insert(relay.session().to_owned(), identity);
        }
        let found: BTreeMap<_, _> = listed(port).await?.into_iter().collect();
        ensure!(
            found == self.incarnations,
            "the sessions have changed\nnow:    {found:?}\nbefore: {:?}",
            self.incarnations
        );
        for (session, identity) in &identities {
            still_runs(port, session, identity).await?;
        }
        println!(
            "{} kills in {:?}: {} sessions, {connections} connections, {lines} lines in, {ticks} ticks, \
             {} commands, {} followed, {} made, {} deleted, {} lost requests",
            self.kills,
            self.began.elapsed(),
            found.len(),
            self.tally.commands.load(Ordering::Relaxed),
            self.tally.followed.load(Ordering::Relaxed),
            self.tally.made.load(Ordering::Relaxed),
            self.tally.deleted.load(Ordering::Relaxed),
            self.tally.lost.load(Ordering::Relaxed),
        );
        Ok(())
    }
}

/// Checks that the process is the original one and the only one.
async fn still_runs(port: u16, session: &str, identity: &Identity) -> anyhow::Result<()> {
    let Identity { pid, start_time } = identity;
    let asking = format!(
        "sed 's/.*) //' /proc/{pid}/stat | cut -d' ' -f20; \
         grep -lz '^perl$' /proc/[0-9]*/cmdline 2>/dev/null | wc -l"
    );
    let printed = output(port, session, &asking).await?;
    ensure!(
        printed == format!("{start_time}\n1\n"),
        "{session}: expected process {identity:?}, found {printed:?}"
    );
    Ok(())
}
