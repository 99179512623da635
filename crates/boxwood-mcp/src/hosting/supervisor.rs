//! Keeps one server as it is wanted: started, connected, tried again, or at rest.
//!
//! Comes in: orders, and what becomes of the server's processes. Goes out: the server's condition. One
//! task for each server, so nothing is done to a server twice at the same time. A long step is given up
//! when an order comes that makes it pointless; whatever it left is cleared away before the next.

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{McpPhase, McpServerSpec};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::HostingError;
use super::adopt::{self, TakenOver};
use super::box_spec::Lasts;
use super::fault::Fault;
use super::hosted::{Condition, Hosted, Stop};
use super::install::Reuse;
use super::kit::Kit;
use super::orders::{Order, Reply, done};
use super::removal;
use super::retry::{GivenUp, Next, Retry};
use super::run_record::needs_restart;
use super::server::Live;
use super::starting::{Start, Up, no_boxes};
use super::{Standing, attend, greeting};

/// What comes next.
pub(crate) enum Mode {
    /// It may be running since before this daemon.
    Adopt,
    Start,
    Up(Box<Up>),
    TakenOver(Box<TakenOver>),
    Pause(Instant),
    NoBoxes,
    /// A box may be there that is not wanted any more.
    Clear,
    Rest,
    Gone,
}

/// How far it is when an order comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum During {
    /// It starts, or runs.
    Life,
    /// It will start by itself.
    Waiting,
    Rest,
}

pub(crate) struct Supervisor {
    pub(crate) kit: Arc<Kit>,
    pub(crate) hosted: Arc<Hosted>,
    pub(crate) orders: mpsc::Receiver<Order>,
    /// The daemon ends: let go of everything, boxes go on.
    pub(crate) closing: CancellationToken,
    pub(crate) retry: Retry,
    /// The run it is in.
    pub(crate) live: Option<Arc<Live>>,
    /// What it was when it was last started: that is what runs, whatever its description is by now.
    pub(crate) ran_as: Arc<McpServerSpec>,
    /// Starts in a row that found no boxes.
    pub(crate) found_no_boxes: u32,
}

impl Supervisor {
    pub(crate) async fn run(mut self, first: Mode) {
        let mut mode = first;
        loop {
            mode = match mode {
                Mode::Adopt => self.adopt().await,
                Mode::Start => self.start().await,
                Mode::Up(up) => attend::attend(&mut self, *up, None).await,
                Mode::TakenOver(taken) => {
                    let TakenOver { up, left } = *taken;
                    attend::attend(&mut self, up, Some(left)).await
                }
                Mode::Pause(until) => self.pause(until).await,
                Mode::NoBoxes => self.look_again().await,
                Mode::Clear => {
                    self.cleared().await;
                    Mode::Rest
                }
                Mode::Rest => self.rest().await,
                Mode::Gone => break,
            };
        }
        if let Some(live) = self.live.take() {
            // Its main process goes on. The others are of no use without this daemon.
            live.children.leave();
            live.close();
        }
        // Nobody waits for an answer that cannot come.
        self.orders.close();
        while let Ok(order) = self.orders.try_recv() {
            order.refuse(HostingError::Closing);
        }
    }

    async fn adopt(&mut self) -> Mode {
        self.hosted.becomes(Condition::Connecting);
        let spec = self.runs_as_described();
        let (kit, hosted) = (Arc::clone(&self.kit), Arc::clone(&self.hosted));
        let adopting = async move {
            // Whoever turns boxes off means those that run as well. A backend that is out of order now
            // says nothing about a box that it made before.
            let look = kit.runtime.standing(&spec.settings);
            let look = tokio::time::timeout(kit.settings.look_again, look);
            if let Ok(standing @ Standing::Disabled) = look.await
                && let Some(fault) = no_boxes(standing)
            {
                hosted.track.begin();
                hosted.track.enter(McpPhase::BoxUnavailable, None);
                return Err(fault);
            }
            Ok(adopt::adopt(&kit, &hosted, &spec).await)
        };
        match self.unless_ordered(adopting).await {
            Ok(Ok(Some(taken))) => Mode::TakenOver(Box::new(taken)),
            Ok(Ok(None)) => Mode::Start,
            Ok(Err(fault)) => self.failed(fault).await,
            Err(mode) => mode,
        }
    }

    async fn start(&mut self) -> Mode {
        let spec = self.runs_as_described();
        self.hosted.becomes(Condition::Queued);
        let (kit, hosted) = (Arc::clone(&self.kit), Arc::clone(&self.hosted));
        let retry_count = self.retry.count();
        let attempt = async move {
            // No clock runs before it is its turn.
            let _turn = if let Some(turn) = kit.turns.take_now() {
                turn
            } else {
                let why = "queued until others have started".to_owned();
                hosted.track.wait(why, retry_count, None);
                kit.turns.take().await
            };
            hosted.track.begin();
            // Whoever sees that it is on its way sees how far it is.
            hosted.track.enter(McpPhase::SessionCreate, None);
            hosted.becomes(Condition::Connecting);
            hosted.has_box(true);
            let start = Start {
                kit: &kit,
                spec: &spec,
                session: &hosted.session,
                lasts: Lasts::UntilRemoved,
                track: &hosted.track,
                protocol: &hosted.protocol,
            };
            start.run().await
        };
        match self.unless_ordered(attempt).await {
            Ok(Ok(up)) => Mode::Up(Box::new(up)),
            Ok(Err(fault)) => self.failed(fault).await,
            Err(mode) => mode,
        }
    }

    fn runs_as_described(&mut self) -> Arc<McpServerSpec> {
        self.ran_as = self.hosted.spec();
        self.hosted.runs_as(&self.ran_as);
        Arc::clone(&self.ran_as)
    }

    /// Works until it is done, or until an order makes it pointless; then it is dropped first.
    pub(crate) async fn unless_ordered<T>(
        &mut self,
        work: impl Future<Output = T> + Send,
    ) -> Result<T, Mode> {
        let mut work = Box::pin(work);
        let order = loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                order = self.next_order() => match order {
                    Some(order) => if let Some(order) = self.harmless(order) {
                        break order;
                    },
                    None => return Err(Mode::Gone),
                },
            }
        };
        drop(work);
        Err(self.obey(order, During::Life).await.unwrap_or(Mode::Start))
    }

    /// `None` once the daemon ends.
    pub(crate) async fn next_order(&mut self) -> Option<Order> {
        tokio::select! {
            order = self.orders.recv() => order,
            () = self.closing.cancelled() => None,
        }
    }

    /// Answers what changes nothing about a server that lives already; gives back what does.
    pub(crate) fn harmless(&self, order: Order) -> Option<Order> {
        match order {
            Order::Wake => None,
            // Somebody has just disabled it; that order comes behind this one.
            Order::Start(reply) | Order::Restart(reply, _) if !self.hosted.spec().enabled => {
                self.refuse_disabled(reply);
                None
            }
            Order::Start(reply) => {
                done(reply, Ok(()));
                None
            }
            Order::Changed(reply) => {
                let now = self.hosted.spec();
                if now.enabled && !needs_restart(&self.ran_as, &now) {
                    done(reply, Ok(()));
                    return None;
                }
                Some(Order::Changed(reply))
            }
            other => Some(other),
        }
    }

    /// What comes next instead; none when things go on as they are.
    pub(crate) async fn obey(&mut self, order: Order, during: During) -> Option<Mode> {
        match order {
            Order::Wake => self.wake(),
            Order::Start(reply) | Order::Restart(reply, _) if !self.hosted.spec().enabled => {
                self.refuse_disabled(reply);
                None
            }
            Order::Start(reply) => {
                if during != During::Life {
                    self.installs(Reuse::IfThere);
                    self.begin_anew();
                }
                done(reply, Ok(()));
                (during != During::Life).then_some(Mode::Start)
            }
            Order::Restart(reply, reuse) => {
                self.installs(reuse);
                self.begin_anew();
                done(reply, Ok(()));
                Some(self.cleared().await)
            }
            Order::Stop(reply) => {
                self.installs(Reuse::IfThere);
                let cleared = self.clear().await;
                if self.hosted.spec().enabled {
                    self.hosted.becomes(Condition::Stopped(Stop::ByHand));
                }
                done(reply, cleared);
                Some(Mode::Rest)
            }
            Order::Changed(reply) => self.changed(reply, during).await,
            Order::Remove(reply) => {
                let removed = self.remove().await;
                let mode = if removed.is_ok() {
                    Mode::Gone
                } else {
                    Mode::Rest
                };
                done(reply, removed);
                Some(mode)
            }
        }
    }

    /// All of it here, where nobody who loses patience can leave half of it undone.
    async fn remove(&mut self) -> Result<(), HostingError> {
        let cleared = self.clear().await;
        if self.hosted.spec().enabled {
            self.hosted.becomes(Condition::Stopped(Stop::ByHand));
        }
        cleared?;
        removal::forget(&self.kit, &self.hosted).await
    }

    fn refuse_disabled(&self, reply: Reply) {
        let name = self.hosted.name.clone();
        done(reply, Err(HostingError::Disabled { name }));
    }

    fn wake(&mut self) -> Option<Mode> {
        let is_asleep = matches!(self.hosted.condition(), Condition::Stopped(Stop::Idle));
        is_asleep.then(|| {
            self.begin_anew();
            Mode::Start
        })
    }

    async fn changed(&mut self, reply: Reply, during: During) -> Option<Mode> {
        let now = self.hosted.spec();
        if !now.enabled {
            self.installs(Reuse::IfThere);
            let cleared = self.clear().await;
            self.hosted.becomes(Condition::Disabled);
            done(reply, cleared);
            return Some(Mode::Rest);
        }
        let starts = match self.hosted.condition() {
            // Whatever was wrong may be mended now.
            Condition::Disabled | Condition::Failed(_) => true,
            Condition::Stopped(_) => false,
            _ => during == During::Waiting || needs_restart(&self.ran_as, &now),
        };
        if !starts {
            done(reply, Ok(()));
            return None;
        }
        self.begin_anew();
        done(reply, Ok(()));
        Some(self.cleared().await)
    }

    /// What runs now ends before it waits for its turn to start.
    async fn cleared(&mut self) -> Mode {
        if let Err(error) = self.clear().await {
            let name = &self.hosted.name;
            tracing::warn!(%name, %error, "the box of a server could not be removed");
        }
        Mode::Start
    }

    /// Whether what is installed will do for the starts to come. An install anew is for as long as it is
    /// tried, and nobody asks for anything else meanwhile.
    fn installs(&self, reuse: Reuse) {
        let session = &self.hosted.session;
        match reuse {
            Reuse::Never => self.kit.reinstall(session.clone()),
            Reuse::IfThere => self.kit.reinstalled(session),
        }
    }

    /// Somebody wants it to start: it has all its attempts again.
    fn begin_anew(&mut self) {
        self.retry.asked();
        self.hosted.retries(0);
        // Whoever follows from now on follows the new start.
        self.hosted.track.begin();
        self.hosted.becomes(Condition::Queued);
    }

    /// Removes the box, everything that runs in it, and the copy that it works on.
    pub(crate) async fn clear(&mut self) -> Result<(), HostingError> {
        if let Some(live) = self.live.take() {
            live.close();
        }
        let (kit, hosted) = (&self.kit, &self.hosted);
        // Somebody else's session of the same name is not ours to remove. A start that was given up before
        // it made a box may have left a copy.
        if !kit.journal.holds(&hosted.session) {
            hosted.has_box(false);
            kit.remove_copy(&hosted.session).await;
            return Ok(());
        }
        let secrets = hosted.secrets();
        if let Some(text) = greeting::stderr(kit, &hosted.session, &secrets).await {
            hosted.keep_stderr(text);
        }
        kit.delete_box(&hosted.session).await?;
        hosted.has_box(false);
        kit.remove_copy(&hosted.session).await;
        Ok(())
    }

    /// Says what failed, clears away what is left, and decides how to go on.
    pub(crate) async fn failed(&mut self, fault: Fault) -> Mode {
        let name = self.hosted.name.clone();
        let fault = fault.redacted(&self.hosted.secrets());
        if let Err(error) = self.clear().await {
            tracing::warn!(%name, %error, "the box of a failed server could not be removed");
        }
        let (phase, message) = (fault.phase, &fault.message);
        tracing::info!(%name, %phase, message, "a hosted MCP server failed");
        if fault.phase == McpPhase::BoxUnavailable {
            self.hosted.becomes(Condition::Failed(fault));
            return Mode::NoBoxes;
        }
        let next = self
            .retry
            .failed(Instant::now(), fault.mends, fault.main_ended);
        self.hosted.retries(self.retry.count());
        match next {
            Next::Again { after } => {
                let until = in_wall_time(after);
                let why = format!("failed in {phase}: {message}");
                let track = &self.hosted.track;
                track.wait(why, self.retry.count(), Some(until));
                self.hosted.becomes(Condition::Pausing { fault, until });
                Mode::Pause(Instant::now() + after)
            }
            Next::GiveUp(why) => {
                // What was installed before may still do, also where nothing can be installed now.
                self.installs(Reuse::IfThere);
                self.hosted.becomes(Condition::Failed(given_up(fault, why)));
                Mode::Rest
            }
        }
    }

    async fn pause(&mut self, until: Instant) -> Mode {
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return Mode::Start,
                order = self.next_order() => match order {
                    None => return Mode::Gone,
                    Some(order) => if let Some(mode) = self.obey(order, During::Waiting).await {
                        return mode;
                    },
                },
            }
        }
    }

    /// There are no boxes now. Once there are, the server is started without being asked for again.
    async fn look_again(&mut self) -> Mode {
        // The runtime may say that it is ready and then not be: it is not asked too often for that.
        let rarely = 1 << self.found_no_boxes.min(4);
        self.found_no_boxes = self.found_no_boxes.saturating_add(1);
        let mut looks = tokio::time::interval(self.kit.settings.look_again * rarely);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        looks.tick().await;
        loop {
            tokio::select! {
                _ = looks.tick() => {
                    let spec = self.hosted.spec();
                    let look = self.kit.runtime.standing(&spec.settings);
                    let within = self.kit.settings.look_again;
                    let Ok(standing) = tokio::time::timeout(within, look).await else {
                        continue;
                    };
                    match no_boxes(standing) {
                        None => {
                            self.begin_anew();
                            return Mode::Start;
                        }
                        Some(fault) => self.still_none(fault),
                    }
                }
                order = self.next_order() => match order {
                    None => return Mode::Gone,
                    Some(order) => if let Some(mode) = self.obey(order, During::Rest).await {
                        return mode;
                    },
                },
            }
        }
    }

    /// The reason may be another one by now.
    fn still_none(&self, fault: Fault) {
        let is_news =
            !matches!(self.hosted.condition(), Condition::Failed(known) if known == fault);
        if is_news {
            self.hosted.becomes(Condition::Failed(fault));
        }
    }

    async fn rest(&mut self) -> Mode {
        loop {
            let Some(order) = self.next_order().await else {
                return Mode::Gone;
            };
            if let Some(mode) = self.obey(order, During::Rest).await {
                return mode;
            }
        }
    }
}

fn given_up(fault: Fault, why: GivenUp) -> Fault {
    let message = match why {
        GivenUp::CannotMend => fault.message,
        GivenUp::Exhausted { attempts } => {
            format!("Failed after {attempts} attempts: {}", fault.message)
        }
        GivenUp::CrashLoop { ends } => {
            format!(
                "The server ended {ends} times within minutes: {}",
                fault.message
            )
        }
    };
    Fault { message, ..fault }
}

fn in_wall_time(after: Duration) -> Timestamp {
    let after = SignedDuration::try_from(after).unwrap_or_default();
    Timestamp::now().saturating_add(after).unwrap_or_default()
}
