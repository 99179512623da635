//! One start attempt, phase by phase, from a definition to a connected server.
//!
//! The caller removes what a failed attempt leaves.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use boxwood_api::{McpPhase, McpServerSpec, McpToolInfo, MountMode, ProcessId, with_causes};

use super::deadline::StartClock;
use super::fault::Fault;
use super::retry::Retryable;
use super::state::ServerState;
use crate::hosting::boxes::box_spec;
use crate::hosting::boxes::box_spec::BoxLifetime;
use crate::hosting::boxes::ids;
use crate::hosting::cache::install::{Install, Installed, Reuse};
use crate::hosting::cache::usage::CacheRef;
use crate::hosting::context::{HostContext, blocking};
use crate::hosting::definitions::secret_args;
use crate::hosting::launch;
use crate::hosting::launch::{InstallPlan, LaunchError, LaunchPlan, Program};
use crate::hosting::process::client_processes::ChildProcesses;
use crate::hosting::process::server::RunningServer;
use crate::hosting::process::{handshake, tools};
use crate::hosting::{BoxAvailability, Secrets};
use crate::wire::{ClientIdentity, Connection, Handshake, Inbound, InboundFilter, WireLimits};

pub(crate) struct Start<'a> {
    pub(crate) context: &'a Arc<HostContext>,
    pub(crate) state: &'a ServerState,
    /// The definition of this start, which may be older than that of `state`.
    pub(crate) spec: &'a McpServerSpec,
    pub(crate) lifetime: BoxLifetime,
}

/// A server after its handshake.
pub(crate) struct Started {
    pub(crate) connection: Connection,
    pub(crate) handshake: Arc<Handshake>,
    pub(crate) tools: Vec<McpToolInfo>,
    /// Opened before the tools were listed, so that no change notification is missed.
    pub(crate) inbound: Inbound,
    /// Incarnation of the box.
    pub(crate) incarnation: u64,
    pub(crate) launched: Program,
    pub(crate) install: Option<CacheRef>,
    /// For an adopted server: processes of earlier clients, which are stopped.
    pub(crate) leftover: Option<Vec<ProcessId>>,
}

impl Started {
    /// Stores the tools in `state`. The second value receives the server's messages.
    pub(crate) fn into_running(
        self,
        context: &Arc<HostContext>,
        state: &ServerState,
        spec: &Arc<McpServerSpec>,
    ) -> (RunningServer, Inbound) {
        state.set_tools(self.tools);
        let running = RunningServer {
            connection: self.connection,
            handshake: self.handshake,
            children: ChildProcesses::new(context, state, spec, self.launched),
            _install: self.install,
            is_adopted: self.leftover.is_some(),
        };
        running
            .children
            .stop_leftover(self.leftover.unwrap_or_default());
        (running, self.inbound)
    }
}

/// A box in which the server can be started.
struct Prepared {
    incarnation: u64,
    launched: Program,
    install: Option<Installed>,
}

impl Start<'_> {
    /// The timeout covers everything except waiting for other servers.
    pub(crate) async fn run(&self) -> Result<Started, Fault> {
        let mut clock = StartClock::start(self.spec.settings.startup_timeout_sec);
        self.enter_session_create();
        let check = self.context.runtime.availability(&self.spec.settings);
        let availability = clock.within(McpPhase::SessionCreate, check).await?;
        if let Some(fault) = boxes_unavailable(availability) {
            let progress_log = &self.state.progress_log;
            progress_log.enter(McpPhase::BoxUnavailable, None);
            return Err(fault);
        }
        let prepared = self.prepare(&mut clock).await?;
        let is_reused = prepared.install.as_ref().is_some_and(|it| !it.is_new);
        match self.connect(&clock, prepared).await {
            Ok(started) => {
                self.state.progress_log.enter(McpPhase::Runtime, None);
                Ok(started)
            }
            Err(mut fault) => {
                // The image may have changed since the install. The retry installs again.
                if is_reused && fault.phase == McpPhase::ProcessStart {
                    self.state.must_reinstall.store(true, Ordering::Relaxed);
                    fault.retryable = Retryable::Once;
                }
                let (session, main) = (&self.state.session, ids::main_process());
                Err(handshake::with_stderr(self.context, session, &main, fault).await)
            }
        }
    }

    fn enter_session_create(&self) {
        let progress_log = &self.state.progress_log;
        if progress_log.phase() != Some(McpPhase::SessionCreate) {
            progress_log.enter(McpPhase::SessionCreate, None);
        }
    }

    async fn prepare(&self, clock: &mut StartClock) -> Result<Prepared, Fault> {
        let phase = McpPhase::SessionCreate;
        let plan = clock.within(phase, self.plan()).await??;
        // A box of an earlier start may exist.
        let removing = self.context.delete_box(&self.state.session);
        clock.call(phase, removing).await?;
        clock.within(phase, self.check_directories(&plan)).await??;
        let install = match &plan.install {
            Some(install) => Some(self.install(clock, install).await?),
            None => None,
        };
        self.state.must_reinstall.store(false, Ordering::Relaxed);
        let directory = install
            .as_ref()
            .map(|installed| installed.directory.clone());
        let incarnation = self.create_box(clock, &plan, directory.as_deref()).await?;
        let phase = McpPhase::DepInstall;
        let program = match blocking(move || Ok(plan.program(directory.as_deref()))).await {
            Ok(program) => program.map_err(|error| from_launch_error(phase, &error))?,
            Err(error) => return Err(Fault::from_storage(phase, "reading an install", &error)),
        };
        Ok(Prepared {
            incarnation,
            launched: program.without_secrets(self.spec),
            install,
        })
    }

    /// Computes the cache key of the install.
    pub(crate) async fn key(
        &self,
        clock: &StartClock,
        install: &InstallPlan,
    ) -> Result<String, Fault> {
        let phase = McpPhase::SessionCreate;
        let session = &self.state.session;
        let spec = box_spec::of_installer(self.spec, session, &[]);
        let kind = clock
            .call(phase, self.context.runtime.resolve(spec))
            .await?;
        let plan = install.clone();
        let computing = self.on_host("computing the install key", move || plan.key(&kind));
        let key = clock.within(phase, computing).await??;
        let key = key.map_err(|error| from_launch_error(phase, &error))?;
        Ok(if self.is_exclusive(install) {
            format!("{key}-{session}")
        } else {
            key
        })
    }

    /// Code from a host directory runs during the install and may change the result in ways that no key covers. The
    /// install of a test is therefore never shared with a stored server, which has secrets.
    fn is_exclusive(&self, install: &InstallPlan) -> bool {
        self.lifetime == BoxLifetime::Test && !install.parts.is_empty()
    }

    async fn on_host<T: Send + 'static>(
        &self,
        doing: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let result = self.context.on_host(work).await;
        result.map_err(|error| Fault::from_storage(McpPhase::SessionCreate, doing, &error))
    }

    async fn plan(&self) -> Result<LaunchPlan, Fault> {
        let spec = secret_args::filled(self.spec);
        let planning = move || launch::plan(&spec, &launch::tools_of_this_host());
        let secrets = Secrets::of(&self.spec.env);
        match self.on_host("planning the launch", planning).await? {
            Ok(mut plan) => {
                if let Some(install) = &mut plan.install {
                    install.what = secrets.hide(std::mem::take(&mut install.what));
                }
                Ok(plan)
            }
            Err(error) => Err(self.reveal(&error.redacted(&secrets)).await),
        }
    }

    /// Reveals the state of host files only if policy would allow mounting them.
    async fn reveal(&self, error: &LaunchError) -> Fault {
        let checked = match error.concerned_directory() {
            Some(directory) => self.check_policy(directory, MountMode::Ro).await,
            None => Ok(()),
        };
        match checked {
            Ok(()) => from_launch_error(McpPhase::SessionCreate, error),
            Err(refused) => refused,
        }
    }

    /// Checks all directories before anything in them is read.
    async fn check_directories(&self, plan: &LaunchPlan) -> Result<(), Fault> {
        for directory in &plan.directories {
            let mode = self.spec.settings.host_path_mode;
            self.check_policy(&directory.real, mode).await?;
        }
        Ok(())
    }

    /// Checks with policy whether a directory may be mounted.
    async fn check_policy(&self, directory: &Path, mode: MountMode) -> Result<(), Fault> {
        let phase = McpPhase::SessionCreate;
        let spec = box_spec::mount_check(self.spec, &self.state.session, directory, mode);
        let allowed = self.context.runtime.check_policy(spec).await;
        if allowed.map_err(|error| Fault::from_runtime(phase, error))? {
            return Ok(());
        }
        let message =
            "the profile locks `host_path_mode` to `none`, so the host_path is not mounted";
        Err(Fault::new(phase, message).not_retryable())
    }

    async fn install(
        &self,
        clock: &mut StartClock,
        plan: &InstallPlan,
    ) -> Result<Installed, Fault> {
        let reuse = if self.state.must_reinstall.load(Ordering::Relaxed) {
            Reuse::Never
        } else {
            Reuse::IfPresent
        };
        let install = Install {
            context: self.context,
            spec: self.spec,
            plan,
            key: &self.key(clock, plan).await?,
            progress_log: &self.state.progress_log,
        };
        let mut installed = install.run(clock, reuse).await?;
        if self.is_exclusive(plan) {
            installed.cache_ref = installed.cache_ref.removed_on_drop();
        }
        Ok(installed)
    }

    /// Returns the incarnation of the box.
    async fn create_box(
        &self,
        clock: &StartClock,
        plan: &LaunchPlan,
        install: Option<&Path>,
    ) -> Result<u64, Fault> {
        self.enter_session_create();
        let session = &self.state.session;
        let spec = box_spec::of_server(self.spec, session, &plan.directories, self.lifetime);
        let has_node_modules = plan.install.as_ref().is_some_and(|it| it.has_node_modules);
        let mounts =
            install.map(|directory| box_spec::mounts_of_install(directory, has_node_modules));
        let creating = self
            .context
            .runtime
            .create(spec, mounts.unwrap_or_default());
        let created = clock.call(McpPhase::SessionCreate, creating).await?;
        self.state.progress_log.notice(created.notices);
        Ok(created.session.incarnation)
    }

    /// Starts the process and performs the handshake.
    async fn connect(&self, clock: &StartClock, prepared: Prepared) -> Result<Started, Fault> {
        let progress_log = &self.state.progress_log;
        let session = &self.state.session;
        let main = ids::main_process();
        let phase = McpPhase::ProcessStart;
        progress_log.enter(phase, None);
        let process = prepared
            .launched
            .process(main.clone(), self.spec)
            .validate()
            .map_err(|error| Fault::new(phase, error.to_string()).not_retryable())?;
        let starting = self.context.runtime.start(session, process);
        clock.call(phase, starting).await?;
        progress_log.enter(McpPhase::RelayConnect, None);
        let wire = handshake::attach(self.context, session, &main, clock).await?;
        let log = Arc::clone(&self.state.protocol);
        let connection = Connection::open(wire, WireLimits::default(), log);
        progress_log.enter(McpPhase::McpInit, None);
        let handshake =
            handshake::handshake(&connection, &ClientIdentity::boxwood(), clock).await?;
        let inbound = connection.inbound(InboundFilter::Notifications);
        let tools = tools::list(&connection, &handshake, clock.remaining())
            .await
            .map_err(|error| handshake::from_list_error(error, clock))?;
        Ok(Started {
            connection,
            handshake: Arc::new(handshake),
            tools,
            inbound,
            incarnation: prepared.incarnation,
            launched: prepared.launched,
            install: prepared.install.map(|installed| installed.cache_ref),
            leftover: None,
        })
    }
}

/// A server never starts outside a box.
pub(crate) fn boxes_unavailable(availability: BoxAvailability) -> Option<Fault> {
    match availability {
        BoxAvailability::Ready => None,
        BoxAvailability::Disabled => {
            let fault = Fault::new(McpPhase::BoxUnavailable, "box_disabled_in_config");
            let hint = "set `box.enabled = true` in the daemon's configuration".to_owned();
            Some(fault.with_hint(hint).not_retryable())
        }
        BoxAvailability::Unavailable { message, hint } => {
            Some(Fault::boxes_unavailable(message, hint))
        }
    }
}

fn from_launch_error(phase: McpPhase, error: &LaunchError) -> Fault {
    let fault = Fault::new(phase, with_causes(error)).with_hint(error.hint());
    if error.is_permanent() {
        fault.not_retryable()
    } else {
        fault
    }
}
