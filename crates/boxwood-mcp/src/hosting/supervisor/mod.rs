//! Runs one server: start, supervision, retries, commands and stop.
//!
//! Each server has one supervisor task, so operations on a server never overlap. A command that makes the current
//! step pointless cancels it, and its leftovers are removed before the next step.

pub(crate) mod adopt;
mod connected;
pub(crate) mod deadline;
pub(crate) mod fault;
pub(crate) mod handle;
pub(crate) mod health;
pub(crate) mod retry;
pub(crate) mod run_record;
pub(crate) mod start;
pub(crate) mod state;
pub(crate) mod test_run;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use boxwood_api::{McpPhase, McpServerSpec};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::fault::Fault;
use self::handle::{Command, Reply, send_reply};
use self::retry::{GiveUpReason, Next, Retry};
use self::run_record::needs_restart;
use self::start::{Start, Started, boxes_unavailable};
use self::state::{RunState, ServerState, StopCause};
use super::BoxAvailability;
use super::HostingError;
use super::boxes::box_spec::BoxLifetime;
use super::boxes::ids;
use super::cache::install::Reuse;
use super::context::{HostContext, storing};
use super::process::handshake;
use super::process::server::RunningServer;

/// The next state of the supervisor.
pub(crate) enum Step {
    /// The server may still be running: from an earlier daemon, or after a lost connection.
    Adopt,
    Start,
    Connected(Box<Started>),
    Backoff(Instant),
    AwaitBoxes,
    /// A box may exist although the server is disabled.
    RemoveBox,
    Inactive,
    Exit,
}

/// State of the server when a command arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Starting or running.
    Active,
    /// Waiting for a retry.
    Waiting,
    Inactive,
}

pub(crate) struct Supervisor {
    pub(crate) context: Arc<HostContext>,
    pub(crate) state: Arc<ServerState>,
    pub(crate) commands: mpsc::Receiver<Command>,
    /// Cancelled when the daemon shuts down. Boxes keep running.
    pub(crate) closing: CancellationToken,
    pub(crate) retry: Retry,
    pub(crate) live: Option<Arc<RunningServer>>,
    /// The definition of the current run, which may differ from the stored one.
    pub(crate) running_spec: Arc<McpServerSpec>,
    /// Consecutive starts without available boxes.
    pub(crate) unavailable_count: u32,
    pub(crate) connection_lost_at: Option<Instant>,
}

impl Supervisor {
    pub(crate) async fn run(mut self, first: Step) {
        let mut step = first;
        loop {
            step = match step {
                Step::Adopt => self.adopt().await,
                Step::Start => self.start().await,
                Step::Connected(started) => connected::run(&mut self, *started).await,
                Step::Backoff(until) => self.pause(until).await,
                Step::AwaitBoxes => self.await_boxes().await,
                Step::RemoveBox => {
                    self.clear_or_log().await;
                    Step::Inactive
                }
                Step::Inactive => self.wait_inactive().await,
                Step::Exit => break,
            };
        }
        if let Some(live) = self.live.take() {
            // The main process keeps running. The others have no use without this daemon.
            live.children.detach();
            live.close();
        }
        // Answer pending commands.
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            command.refuse(HostingError::Closing);
        }
    }

    async fn adopt(&mut self) -> Step {
        self.state.set_run_state(RunState::Connecting);
        if let Some(live) = self.live.take() {
            live.close();
        }
        let spec = self.use_current_definition();
        let (context, state) = (Arc::clone(&self.context), Arc::clone(&self.state));
        let adopting = async move {
            // Disabling boxes also applies to running servers. A backend that is unavailable now says nothing about
            // an existing box.
            let check = context.runtime.availability(&spec.settings);
            let check = tokio::time::timeout(context.settings.await_boxes, check);
            if let Ok(availability @ BoxAvailability::Disabled) = check.await
                && let Some(fault) = boxes_unavailable(availability)
            {
                state.progress_log.begin();
                state.progress_log.enter(McpPhase::BoxUnavailable, None);
                return Err(fault);
            }
            Ok(adopt::adopt(&context, &state, &spec).await)
        };
        match self.run_or_command(adopting).await {
            Ok(Ok(Some(started))) => Step::Connected(Box::new(started)),
            Ok(Ok(None)) => self.clear_and_start().await,
            Ok(Err(fault)) => self.failed(fault).await,
            Err(step) => step,
        }
    }

    async fn start(&mut self) -> Step {
        let spec = self.use_current_definition();
        self.state.set_run_state(RunState::Queued);
        let (context, state) = (Arc::clone(&self.context), Arc::clone(&self.state));
        let retry_count = self.retry.count();
        let attempt = async move {
            // Waiting for a permit does not count against the start timeout.
            let _permit = if let Ok(permit) = context.start_permits.try_acquire() {
                Some(permit)
            } else {
                let reason = "queued until other servers have started".to_owned();
                state.progress_log.wait(reason, retry_count, None);
                context.start_permits.acquire().await.ok()
            };
            state.progress_log.begin();
            // Set before the status, so that a connecting server always has a phase.
            state.progress_log.enter(McpPhase::SessionCreate, None);
            state.set_run_state(RunState::Connecting);
            state.set_has_box(true);
            let start = Start {
                context: &context,
                state: &state,
                spec: &spec,
                lifetime: BoxLifetime::Persistent,
            };
            start.run().await
        };
        match self.run_or_command(attempt).await {
            Ok(Ok(started)) => Step::Connected(Box::new(started)),
            Ok(Err(fault)) => self.failed(fault).await,
            Err(step) => step,
        }
    }

    fn use_current_definition(&mut self) -> Arc<McpServerSpec> {
        self.running_spec = self.state.spec();
        self.state.redact_as(&self.running_spec);
        Arc::clone(&self.running_spec)
    }

    /// Runs `work` to completion, or drops it when a command makes it pointless and executes that command.
    pub(crate) async fn run_or_command<T>(
        &mut self,
        work: impl Future<Output = T> + Send,
    ) -> Result<T, Step> {
        let mut work = Box::pin(work);
        let command = loop {
            tokio::select! {
                result = &mut work => return Ok(result),
                command = self.next_command() => match command {
                    None => return Err(Step::Exit),
                    Some(command) if self.is_noop(&command) => {
                        self.execute(command, Activity::Active).await;
                    }
                    Some(command) => break command,
                },
            }
        };
        drop(work);
        Err(self
            .execute(command, Activity::Active)
            .await
            .unwrap_or(Step::Start))
    }

    /// `None` once the daemon shuts down.
    pub(crate) async fn next_command(&mut self) -> Option<Command> {
        tokio::select! {
            command = self.commands.recv() => command,
            () = self.closing.cancelled() => None,
        }
    }

    /// Returns true for commands that do not affect a starting or running server.
    fn is_noop(&self, command: &Command) -> bool {
        let spec = self.state.spec();
        match command {
            Command::StartIdle | Command::Start(_) => true,
            // Refused. The command that disables the server is already queued.
            Command::Restart(..) => !spec.enabled,
            Command::Changed(_) => spec.enabled && !needs_restart(&self.running_spec, &spec),
            Command::Stop(_) | Command::Remove(_) => false,
        }
    }

    /// Returns the next step, or `None` to continue the current one.
    pub(crate) async fn execute(&mut self, command: Command, during: Activity) -> Option<Step> {
        match command {
            Command::StartIdle => self.start_idle(),
            Command::Start(reply) | Command::Restart(reply, _) if !self.state.spec().enabled => {
                self.refuse_disabled(reply);
                None
            }
            Command::Start(reply) => {
                if during != Activity::Active {
                    self.set_reuse(Reuse::IfPresent);
                    self.reset_retries();
                }
                send_reply(reply, Ok(()));
                (during != Activity::Active).then_some(Step::Start)
            }
            Command::Restart(reply, reuse) => {
                self.set_reuse(reuse);
                self.reset_retries();
                send_reply(reply, Ok(()));
                Some(self.clear_and_start().await)
            }
            Command::Stop(reply) => {
                self.set_reuse(Reuse::IfPresent);
                let cleared = self.clear().await;
                if self.state.spec().enabled {
                    self.state
                        .set_run_state(RunState::Stopped(StopCause::Requested));
                }
                send_reply(reply, cleared);
                Some(Step::Inactive)
            }
            Command::Changed(reply) => self.changed(reply, during).await,
            Command::Remove(reply) => {
                let removed = self.remove().await;
                let step = if removed.is_ok() {
                    Step::Exit
                } else {
                    Step::Inactive
                };
                send_reply(reply, removed);
                Some(step)
            }
        }
    }

    /// Runs in the supervisor, so that a cancelled request cannot leave it incomplete.
    async fn remove(&mut self) -> Result<(), HostingError> {
        let cleared = self.clear().await;
        if self.state.spec().enabled {
            self.state
                .set_run_state(RunState::Stopped(StopCause::Requested));
        }
        cleared?;
        remove_files(&self.context, &self.state).await
    }

    fn refuse_disabled(&self, reply: Reply) {
        let name = self.state.name.clone();
        send_reply(reply, Err(HostingError::Disabled { name }));
    }

    fn start_idle(&mut self) -> Option<Step> {
        let is_idle = matches!(self.state.run_state(), RunState::Stopped(StopCause::Idle));
        is_idle.then(|| {
            self.reset_retries();
            Step::Start
        })
    }

    async fn changed(&mut self, reply: Reply, during: Activity) -> Option<Step> {
        let spec = self.state.spec();
        if !spec.enabled {
            self.set_reuse(Reuse::IfPresent);
            let cleared = self.clear().await;
            self.state.set_run_state(RunState::Disabled);
            send_reply(reply, cleared);
            return Some(Step::Inactive);
        }
        let starts = match self.state.run_state() {
            // The update may have fixed the failure.
            RunState::Disabled | RunState::Failed(_) => true,
            RunState::Stopped(_) => false,
            _ => during == Activity::Waiting || needs_restart(&self.running_spec, &spec),
        };
        if !starts {
            send_reply(reply, Ok(()));
            return None;
        }
        self.reset_retries();
        send_reply(reply, Ok(()));
        Some(self.clear_and_start().await)
    }

    /// The next start. The box is removed now, because the start may have to wait for a permit.
    async fn clear_and_start(&mut self) -> Step {
        self.clear_or_log().await;
        Step::Start
    }

    /// Removes the box. A failure is only logged.
    async fn clear_or_log(&mut self) {
        if let Err(error) = self.clear().await {
            let name = &self.state.name;
            tracing::warn!(%name, %error, "failed to remove the box of a server");
        }
    }

    /// Sets whether the next starts may use the cached install. A requested reinstall stays pending until it
    /// succeeds or another command replaces it.
    fn set_reuse(&self, reuse: Reuse) {
        let must_reinstall = reuse == Reuse::Never;
        self.state
            .must_reinstall
            .store(must_reinstall, Ordering::Relaxed);
    }

    /// An explicit start resets the retry count.
    fn reset_retries(&mut self) {
        self.retry.reset();
        self.state.set_retry_count(0);
        // New followers see only the new start.
        self.state.progress_log.begin();
        self.state.set_run_state(RunState::Queued);
    }

    /// Removes the box with all processes.
    pub(crate) async fn clear(&mut self) -> Result<(), HostingError> {
        if let Some(live) = self.live.take() {
            live.close();
        }
        let (context, state) = (&self.context, &self.state);
        let secrets = state.secrets();
        let main = ids::main_process();
        if let Some(text) = handshake::stderr(context, &state.session, &main, &secrets).await {
            state.keep_stderr(text);
        }
        context.delete_box(&state.session).await?;
        state.set_has_box(false);
        Ok(())
    }

    /// Records the failure, removes leftovers and decides on a retry.
    pub(crate) async fn failed(&mut self, fault: Fault) -> Step {
        let name = self.state.name.clone();
        let fault = fault.redacted(&self.state.secrets());
        if let Err(error) = self.clear().await {
            tracing::warn!(%name, %error, "failed to remove the box of a failed server");
        }
        let (phase, message) = (fault.phase, &fault.message);
        tracing::info!(%name, %phase, error = message, "hosted MCP server failed");
        if fault.phase == McpPhase::BoxUnavailable {
            self.state.set_run_state(RunState::Failed(fault));
            return Step::AwaitBoxes;
        }
        let next = self
            .retry
            .failed(Instant::now(), fault.retryable, fault.main_exited);
        self.state.set_retry_count(self.retry.count());
        match next {
            Next::Retry { after } => {
                let until = to_timestamp(after);
                let reason = format!("failed in {phase}: {message}");
                let progress_log = &self.state.progress_log;
                progress_log.wait(reason, self.retry.count(), Some(until));
                self.state
                    .set_run_state(RunState::RetryWait { fault, until });
                Step::Backoff(Instant::now() + after)
            }
            Next::GiveUp(reason) => {
                // The cached install may still work, even if installing fails now.
                self.set_reuse(Reuse::IfPresent);
                self.state
                    .set_run_state(RunState::Failed(give_up_fault(fault, reason)));
                Step::Inactive
            }
        }
    }

    /// Executes commands until `work` is complete, or until a command leads to another step.
    async fn commands_until<T>(
        &mut self,
        during: Activity,
        work: impl Future<Output = T> + Send,
    ) -> Result<T, Step> {
        let mut work = Box::pin(work);
        loop {
            tokio::select! {
                result = &mut work => return Ok(result),
                command = self.next_command() => match command {
                    None => return Err(Step::Exit),
                    Some(command) => if let Some(step) = self.execute(command, during).await {
                        return Err(step);
                    },
                },
            }
        }
    }

    async fn pause(&mut self, until: Instant) -> Step {
        let pause = tokio::time::sleep_until(until);
        match self.commands_until(Activity::Waiting, pause).await {
            Ok(()) => Step::Start,
            Err(step) => step,
        }
    }

    async fn wait_inactive(&mut self) -> Step {
        let forever = std::future::pending::<Infallible>();
        match self.commands_until(Activity::Inactive, forever).await {
            Ok(never) => match never {},
            Err(step) => step,
        }
    }

    /// Polls until boxes are available, then starts the server.
    async fn await_boxes(&mut self) -> Step {
        // Back off if the runtime reports availability but starts keep failing.
        let backoff = 1 << self.unavailable_count.min(4);
        self.unavailable_count = self.unavailable_count.saturating_add(1);
        let (context, state) = (Arc::clone(&self.context), Arc::clone(&self.state));
        let interval = context.settings.await_boxes;
        loop {
            let check = async {
                tokio::time::sleep(interval * backoff).await;
                let spec = state.spec();
                let check = context.runtime.availability(&spec.settings);
                tokio::time::timeout(interval, check).await
            };
            match self.commands_until(Activity::Inactive, check).await {
                Ok(Ok(availability)) => match boxes_unavailable(availability) {
                    None => {
                        self.reset_retries();
                        return Step::Start;
                    }
                    Some(fault) => self.update_unavailable(fault),
                },
                Ok(Err(_timed_out)) => {}
                Err(step) => return step,
            }
        }
    }

    /// Updates the fault, because the cause may have changed.
    fn update_unavailable(&self, fault: Fault) {
        let is_new = !matches!(self.state.run_state(), RunState::Failed(known) if known == fault);
        if is_new {
            self.state.set_run_state(RunState::Failed(fault));
        }
    }
}

fn give_up_fault(fault: Fault, reason: GiveUpReason) -> Fault {
    let message = match reason {
        GiveUpReason::NotRetryable => fault.message,
        GiveUpReason::Exhausted { attempts } => {
            format!("Failed after {attempts} attempts: {}", fault.message)
        }
        GiveUpReason::CrashLoop { exits } => {
            format!(
                "The server exited {exits} times within minutes: {}",
                fault.message
            )
        }
    };
    Fault { message, ..fault }
}

fn to_timestamp(after: Duration) -> Timestamp {
    let after = SignedDuration::try_from(after).unwrap_or_default();
    Timestamp::now().saturating_add(after).unwrap_or_default()
}

/// Call after the box is removed. The definition is removed last, so that a failed removal can be repeated.
pub(crate) async fn remove_files(
    context: &Arc<HostContext>,
    state: &ServerState,
) -> Result<(), HostingError> {
    let (context, name) = (Arc::clone(context), state.name.clone());
    let remove = move || context.store.remove(&name);
    storing("removing an MCP server", remove).await.map(drop)
}

/// Removes a server whose supervisor has ended.
pub(crate) async fn remove_abandoned(
    context: &Arc<HostContext>,
    state: &ServerState,
) -> Result<(), HostingError> {
    context.delete_box(&state.session).await?;
    remove_files(context, state).await
}
