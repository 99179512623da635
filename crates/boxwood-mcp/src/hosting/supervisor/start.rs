//! One start attempt, phase by phase, from a definition to a connected server.
//!
//! The caller removes what a failed attempt leaves.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use boxwood_agent::Running;
use boxwood_api::{
    McpPhase, McpServerSpec, McpToolInfo, MountMode, Reason, SessionId, SpecRequest,
};

use super::deadline::StartClock;
use super::fault::Fault;
use super::run_record::Launched;
use crate::hosting::boxes::box_spec;
use crate::hosting::boxes::box_spec::BoxLifetime;
use crate::hosting::boxes::ids;
use crate::hosting::cache::install::{Install, Installed, Reuse};
use crate::hosting::cache::usage::CacheRef;
use crate::hosting::context::{HostContext, blocking};
use crate::hosting::definitions::secret_args;
use crate::hosting::launch;
use crate::hosting::launch::{HostFacts, InstallPlan, LaunchError, LaunchPlan, Program};
use crate::hosting::logs::progress::ProgressLog;
use crate::hosting::process::{handshake, tools};
use crate::hosting::{BoxAvailability, Secrets};
use crate::wire::{
    ClientIdentity, Connection, Handshake, Inbound, InboundFilter, ProtocolLog, WireLimits,
};

/// Timeout of the command that checks whether an install still works in the box.
const CHECK_SECONDS: u64 = 20;

pub(crate) struct Start<'a> {
    pub(crate) context: &'a Arc<HostContext>,
    pub(crate) spec: &'a McpServerSpec,
    pub(crate) session: &'a SessionId,
    pub(crate) lifetime: BoxLifetime,
    pub(crate) progress_log: &'a ProgressLog,
    pub(crate) protocol: &'a Arc<ProtocolLog>,
    /// Cleared once the install succeeded.
    pub(crate) must_reinstall: &'a AtomicBool,
}

/// A server after its handshake.
pub(crate) struct Started {
    pub(crate) connection: Connection,
    pub(crate) handshake: Arc<Handshake>,
    pub(crate) tools: Vec<McpToolInfo>,
    /// Opened before the tools were listed, so that no change notification is missed.
    pub(crate) inbound: Inbound,
    /// Of the box.
    pub(crate) incarnation: u64,
    pub(crate) launched: Launched,
    pub(crate) install: Option<CacheRef>,
}

/// A box in which the server can be started.
struct Prepared {
    incarnation: u64,
    launched: Launched,
    install: Option<CacheRef>,
}

/// A finished install and the program to start.
struct Ready {
    program: Program,
    installed: Installed,
}

impl Start<'_> {
    /// The timeout covers everything except waiting for other servers.
    pub(crate) async fn run(&self) -> Result<Started, Fault> {
        let mut clock = StartClock::start(self.spec.settings.startup_timeout_sec);
        if self.progress_log.phase() != Some(McpPhase::SessionCreate) {
            self.progress_log.enter(McpPhase::SessionCreate, None);
        }
        self.look_for_boxes(&clock).await?;
        let prepared = self.prepare(&mut clock).await?;
        match self.speak(&clock, prepared).await {
            Ok(started) => {
                self.progress_log.enter(McpPhase::Runtime, None);
                Ok(started)
            }
            Err(fault) => Err(handshake::with_stderr(self.context, self.session, fault).await),
        }
    }

    async fn look_for_boxes(&self, clock: &StartClock) -> Result<(), Fault> {
        let check = self.context.runtime.availability(&self.spec.settings);
        let availability = clock.within(McpPhase::SessionCreate, check).await?;
        let Some(fault) = boxes_unavailable(availability) else {
            return Ok(());
        };
        self.progress_log.enter(McpPhase::BoxUnavailable, None);
        Err(fault)
    }

    async fn prepare(&self, clock: &mut StartClock) -> Result<Prepared, Fault> {
        let phase = McpPhase::SessionCreate;
        let plan = clock.within(phase, self.plan()).await??;
        // Of an earlier start.
        self.remove_box(clock).await?;
        clock.within(phase, self.judge_all(&plan)).await??;
        let Some(install) = &plan.install else {
            self.must_reinstall.store(false, Ordering::Relaxed);
            let incarnation = self.make_box(clock, &plan, None).await?;
            let program = plan
                .program(None)
                .map_err(|error| of_launch(phase, &error))?;
            return Ok(self.prepared(incarnation, program, None));
        };
        let key = self.key(clock, install).await?;
        let wished = if self.must_reinstall.load(Ordering::Relaxed) {
            Reuse::Never
        } else {
            Reuse::IfPresent
        };
        let ready = self.installed(clock, &plan, &key, wished).await?;
        self.must_reinstall.store(false, Ordering::Relaxed);
        let incarnation = self
            .make_box(clock, &plan, Some(&ready.installed.place))
            .await?;
        if ready.installed.is_new || self.still_fits(clock, &ready.program).await? {
            return Ok(self.prepared(incarnation, ready.program, Some(ready.installed.used)));
        }
        // The image or the host changed and the install no longer works. Servers that run from it keep it.
        self.remove_box(clock).await?;
        drop(ready);
        let ready = self.installed(clock, &plan, &key, Reuse::Never).await?;
        let incarnation = self
            .make_box(clock, &plan, Some(&ready.installed.place))
            .await?;
        Ok(self.prepared(incarnation, ready.program, Some(ready.installed.used)))
    }

    /// Computes the cache key of the install.
    pub(crate) async fn key(
        &self,
        clock: &StartClock,
        install: &InstallPlan,
    ) -> Result<String, Fault> {
        let phase = McpPhase::SessionCreate;
        let spec = box_spec::of_installer(self.spec, self.session, &[]);
        let kind = clock
            .within(phase, self.context.runtime.resolve(spec))
            .await?
            .map_err(|error| Fault::from_runtime(phase, error))?;
        let install = install.clone();
        let is_alone = self.is_alone(&install);
        let check = move || install.key(&kind);
        match clock.within(phase, self.context.on_host(check)).await? {
            Ok(Ok(key)) if is_alone => Ok(format!("{key}-{}", self.session)),
            Ok(Ok(key)) => Ok(key),
            Ok(Err(error)) => Err(of_launch(phase, &error)),
            Err(error) => Err(Fault::from_storage(
                phase,
                "computing the install key",
                &error,
            )),
        }
    }

    /// Code from a host directory runs during the install and may change the result in ways that no key covers. The
    /// install of a test is therefore never shared with a stored server, which has secrets.
    fn is_alone(&self, install: &InstallPlan) -> bool {
        self.lifetime == BoxLifetime::Test && !install.parts.is_empty()
    }

    fn prepared(&self, incarnation: u64, program: Program, install: Option<CacheRef>) -> Prepared {
        Prepared {
            incarnation,
            launched: Launched::new(program, self.spec),
            install,
        }
    }

    async fn plan(&self) -> Result<LaunchPlan, Fault> {
        let spec = secret_args::filled(self.spec);
        let check = move || launch::plan(&spec, &HostFacts::of_this_host());
        match self.context.on_host(check).await {
            Ok(Ok(mut plan)) => {
                if let Some(install) = &mut plan.install {
                    let what = std::mem::take(&mut install.what);
                    install.what = Secrets::of(&self.spec.env).hide(what);
                }
                Ok(plan)
            }
            Ok(Err(error)) => {
                let error = error.redacted(&Secrets::of(&self.spec.env));
                Err(self.may_be_told(&error).await)
            }
            Err(error) => Err(Fault::from_storage(
                McpPhase::SessionCreate,
                "planning the launch",
                &error,
            )),
        }
    }

    /// Reveals the state of host files only if policy would allow mounting them.
    async fn may_be_told(&self, error: &LaunchError) -> Fault {
        let Some(directory) = error.concerned_directory() else {
            return of_launch(McpPhase::SessionCreate, error);
        };
        match self.judge(directory, MountMode::Ro).await {
            Ok(()) => of_launch(McpPhase::SessionCreate, error),
            Err(refused) => refused,
        }
    }

    /// Checks all directories before anything in them is read.
    async fn judge_all(&self, plan: &LaunchPlan) -> Result<(), Fault> {
        for directory in &plan.directories {
            let mode = self.spec.settings.host_path_mode;
            self.judge(&directory.real, mode).await?;
        }
        Ok(())
    }

    /// Checks with policy whether a directory may be mounted.
    async fn judge(&self, directory: &Path, mode: MountMode) -> Result<(), Fault> {
        let phase = McpPhase::SessionCreate;
        let spec = box_spec::to_judge(self.spec, self.session, directory, mode);
        let judged = self.context.runtime.judge(spec).await;
        if judged.map_err(|error| Fault::from_runtime(phase, error))? {
            return Ok(());
        }
        let words = "the profile locks `host_path_mode` to `none`, so the host_path is not mounted";
        Err(Fault::new(phase, words).not_retryable())
    }

    async fn installed(
        &self,
        clock: &mut StartClock,
        plan: &LaunchPlan,
        key: &str,
        reuse: Reuse,
    ) -> Result<Ready, Fault> {
        let Some(install) = &plan.install else {
            return Err(Fault::new(
                McpPhase::DepInstall,
                "there is nothing to install",
            ));
        };
        let mut installed = Install {
            context: self.context,
            spec: self.spec,
            plan: install,
            key,
            progress_log: self.progress_log,
            has_shown: AtomicBool::new(false),
        }
        .run(clock, reuse)
        .await?;
        if self.is_alone(install) {
            installed.used = installed.used.removed_on_drop();
        }
        let (plan, at) = (plan.clone(), installed.place.clone());
        match blocking(move || Ok(plan.program(Some(&at)))).await {
            Ok(Ok(program)) => Ok(Ready { program, installed }),
            Ok(Err(error)) => Err(of_launch(McpPhase::DepInstall, &error)),
            Err(error) => Err(Fault::from_storage(
                McpPhase::DepInstall,
                "reading an install",
                &error,
            )),
        }
    }

    /// Returns the incarnation of the box.
    async fn make_box(
        &self,
        clock: &StartClock,
        plan: &LaunchPlan,
        install: Option<&Path>,
    ) -> Result<u64, Fault> {
        let phase = McpPhase::SessionCreate;
        if self.progress_log.phase() != Some(phase) {
            self.progress_log.enter(phase, None);
        }
        let spec = box_spec::of_server(self.spec, self.session, &plan.directories, self.lifetime);
        let has_node_modules = plan.install.as_ref().is_some_and(|it| it.has_node_modules);
        let mounts = install.map(|place| box_spec::mounts_of_install(place, has_node_modules));
        let mounts = mounts.unwrap_or_default();
        let made = clock
            .within(phase, self.context.runtime.create(spec, mounts))
            .await?
            .map_err(|error| Fault::from_runtime(phase, error))?;
        self.progress_log.notice(made.notices);
        Ok(made.session.incarnation)
    }

    async fn remove_box(&self, clock: &StartClock) -> Result<(), Fault> {
        let phase = McpPhase::SessionCreate;
        clock
            .within(phase, self.context.delete_box(self.session))
            .await?
            .map_err(|error| Fault::from_runtime(phase, error))
    }

    async fn still_fits(&self, clock: &StartClock, program: &Program) -> Result<bool, Fault> {
        let Some(check) = &program.check else {
            return Ok(true);
        };
        let phase = McpPhase::SessionCreate;
        let from_runtime = |error| Fault::from_runtime(phase, error);
        let script = SpecRequest {
            session_id: Some(self.session.clone()),
            cmd: check.clone(),
            timeout_sec: Some(CHECK_SECONDS),
            ..SpecRequest::default()
        };
        let checked = async {
            let mut begun = self.context.runtime.exec(script).await?;
            loop {
                if let Running::Exited(exit) = begun.command.next().await? {
                    return Ok(exit);
                }
            }
        };
        let exit = clock.within(phase, checked).await?.map_err(from_runtime)?;
        // This says nothing about the install, so it is kept.
        if exit.reason == Some(Reason::BoxGone) {
            return Err(Fault::new(
                phase,
                "the box disappeared while its install was checked",
            ));
        }
        Ok(exit.exit_code == Some(0))
    }

    async fn speak(&self, clock: &StartClock, prepared: Prepared) -> Result<Started, Fault> {
        let runtime = &self.context.runtime;
        let Prepared {
            incarnation,
            launched,
            install,
        } = prepared;
        let main = ids::main_process();
        self.progress_log.enter(McpPhase::ProcessStart, None);
        let process = launched
            .process(main.clone(), self.spec)
            .validate()
            .map_err(|error| {
                Fault::new(McpPhase::ProcessStart, error.to_string()).not_retryable()
            })?;
        clock
            .within(McpPhase::ProcessStart, runtime.start(self.session, process))
            .await?
            .map_err(|error| Fault::from_runtime(McpPhase::ProcessStart, error))?;
        self.progress_log.enter(McpPhase::RelayConnect, None);
        let wire = handshake::attach(self.context, self.session, &main, clock).await?;
        let connection = Connection::open(wire, WireLimits::default(), Arc::clone(self.protocol));
        self.progress_log.enter(McpPhase::McpInit, None);
        let mut handshake =
            handshake::handshake(&connection, &ClientIdentity::boxwood(), clock).await?;
        let inbound = connection.inbound(InboundFilter::Notifications);
        let mut tools = tools::list(&connection, &handshake, clock.left())
            .await
            .map_err(|error| handshake::from_list_error(error, clock))?;
        // A test result is shown to users and never passed to MCP clients.
        if self.lifetime == BoxLifetime::Test {
            let secrets = Secrets::of(&self.spec.env);
            secrets.redact_handshake(&mut handshake);
            secrets.hide_in_tools(&mut tools);
        }
        Ok(Started {
            connection,
            handshake: Arc::new(handshake),
            tools,
            inbound,
            incarnation,
            launched,
            install,
        })
    }
}

/// A server never starts outside a box.
pub(crate) fn boxes_unavailable(availability: BoxAvailability) -> Option<Fault> {
    match availability {
        BoxAvailability::Ready => None,
        BoxAvailability::Disabled => {
            let fault = Fault::new(McpPhase::BoxUnavailable, "box_disabled_in_config");
            let hint = "enable boxes in the daemon's configuration".to_owned();
            Some(fault.with_hint(hint).not_retryable())
        }
        BoxAvailability::Unavailable { message, hint } => {
            Some(Fault::boxes_unavailable(message, hint))
        }
    }
}

fn of_launch(phase: McpPhase, error: &LaunchError) -> Fault {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        words = format!("{words}: {next}");
        cause = next.source();
    }
    let fault = Fault::new(phase, words).with_hint(error.hint());
    if error.is_permanent() {
        fault.not_retryable()
    } else {
        fault
    }
}
