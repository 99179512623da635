//! A house full of sessions, from the first daemon to the last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::ask::must;
use crate::chance::{Chance, sessions};
use crate::house::{Daemon, House};
use crate::load::{self, Tally, listed, output};
use crate::relay::{Phase, Relay};
use crate::ticker::{self, Identity};

/// Everything is said again well within this time, once daemons stay.
const CALM_WITHIN: Duration = Duration::from_mins(1);

/// In the order of their numbers.
pub(crate) fn session_name(number: usize) -> String {
    format!("s{number:03}")
}

/// Commands leave so many of the first sessions alone: some of those are going to die.
pub(crate) fn spared() -> usize {
    sessions() / 2
}

pub(crate) struct Storm<'a> {
    pub(crate) house: &'a House,
    pub(crate) chance: Chance,
    /// Of every session that has to live through it.
    pub(crate) incarnations: BTreeMap<String, u64>,
    phase: watch::Sender<Phase>,
    relays: JoinSet<anyhow::Result<Relay>>,
    load: JoinSet<anyhow::Result<()>>,
    pub(crate) tally: Arc<Tally>,
    began: Instant,
    kills: u64,
    /// Sessions that do not live through it, until their clients have said so.
    doomed: BTreeSet<String>,
}

impl<'a> Storm<'a> {
    /// The first daemon, its sessions and their clients.
    pub(crate) async fn gather(
        house: &'a House,
        mut chance: Chance,
    ) -> anyhow::Result<(Self, Daemon)> {
        let mut daemon = house.start();
        daemon.ready().await?;
        let port = house.port();
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
            let relay = Relay::new(port, name, chance.fork());
            relays.spawn(relay.run(phases.clone()));
        }
        let tally = Arc::new(Tally::default());
        let used = incarnations.iter().skip(spared());
        let used: Vec<_> = used.map(|(name, it)| (name.clone(), *it)).collect();
        let load = load::begin(port, &used, &mut chance, &phases, &tally);
        let storm = Self {
            house,
            chance,
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

    /// Kills this daemon after a moment.
    pub(crate) async fn kill(&mut self, daemon: Daemon) -> anyhow::Result<()> {
        tokio::time::sleep(self.chance.millis(5, 800)).await;
        self.kill_now(daemon).await
    }

    pub(crate) async fn kill_now(&mut self, daemon: Daemon) -> anyhow::Result<()> {
        daemon.kill().await?;
        self.kills += 1;
        self.check_clients()
    }

    /// The next daemon, after some that were killed before they were ready.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Daemon> {
        self.next_by(&[]).await
    }

    /// The same, by another program that becomes the daemon.
    pub(crate) async fn next_by(&mut self, before: &[String]) -> anyhow::Result<Daemon> {
        while self.chance.one_in(4) {
            let daemon = self.house.start_by(before);
            tokio::time::sleep(self.chance.millis(0, 500)).await;
            self.kill_now(daemon).await?;
        }
        let mut daemon = self.house.start_by(before);
        daemon.ready().await?;
        Ok(daemon)
    }

    /// A client that has found something wrong ends at once, and so does the test.
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
            // As the relay says whose it is.
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

    /// This session does not live through it.
    pub(crate) fn doom(&mut self, session: &str) {
        self.incarnations.remove(session);
        self.doomed.insert(session.to_owned());
    }

    /// Until the client of a doomed session has noticed.
    pub(crate) async fn lost(&mut self, session: &str) -> anyhow::Result<()> {
        while self.doomed.contains(session) {
            let ended = tokio::time::timeout(CALM_WITHIN, self.relays.join_next()).await;
            match ended.with_context(|| format!("no client noticed that {session} is gone"))? {
                Some(ended) => self.relay_ended(ended?)?,
                None => bail!("there are no relays"),
            }
        }
        Ok(())
    }

    /// No more kills: everything that was said comes back, and everything is where it was.
    pub(crate) async fn calm(&mut self) -> anyhow::Result<()> {
        self.check_clients()?;
        self.phase.send_replace(Phase::Drain);
        while let Some(ended) = self.load.join_next().await {
            ended??;
        }
        let port = self.house.port();
        self.tally.clear_up(port).await?;
        let mut identities = BTreeMap::new();
        let (mut lines, mut ticks, mut connections) = (0, 0, 0);
        loop {
            let next = tokio::time::timeout(CALM_WITHIN, self.relays.join_next()).await;
            let Some(ended) = next.context("a relay did not get back what it said")? else {
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
            "sessions are not what they were\nnow:    {found:?}\nbefore: {:?}",
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

/// The very process, and no other of its kind.
async fn still_runs(port: u16, session: &str, identity: &Identity) -> anyhow::Result<()> {
    let Identity { pid, start_time } = identity;
    let asking = format!(
        "sed 's/.*) //' /proc/{pid}/stat | cut -d' ' -f20; \
         grep -lz '^perl$' /proc/[0-9]*/cmdline 2>/dev/null | wc -l"
    );
    let printed = output(port, session, &asking).await?;
    ensure!(
        printed == format!("{start_time}\n1\n"),
        "{session}: process {identity:?} is told as {printed:?}"
    );
    Ok(())
}
