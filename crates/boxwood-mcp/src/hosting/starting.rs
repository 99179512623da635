//! From a description to a server that answers: one attempt, phase by phase.
//!
//! Comes in: what the server is, and the box's name. Goes out: a connection to its main process, or the
//! phase it failed in and why. Never here: what is done about a failure, and the box's end: whoever
//! asked for the start removes what a failed one left.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use boxwood_agent::Running;
use boxwood_api::{
    McpPhase, McpServerSpec, McpToolInfo, MountMode, Reason, SessionId, SpecRequest,
};

use super::box_spec::{self, Lasts, Workspace};
use super::cache_use::CacheUse;
use super::clock::StartClock;
use super::fault::Fault;
use super::install::{Install, Installed, Reuse};
use super::kit::{Kit, blocking};
use super::launch::{self, HostFacts, HostPath, InstallPlan, LaunchError, LaunchPlan, Program};
use super::naming;
use super::run_record::Launched;
use super::track::Track;
use super::{HostDirectory, Secrets, Standing, greeting, secret_words, tools};
use crate::wire::{Connection, GreetAs, Greeting, Hears, Inbound, ProtocolLog, WireLimits};

/// For the small command that looks whether an install still fits the box.
const CHECK_SECONDS: u64 = 20;

pub(crate) struct Start<'a> {
    pub(crate) kit: &'a Arc<Kit>,
    pub(crate) spec: &'a McpServerSpec,
    pub(crate) session: &'a SessionId,
    pub(crate) lasts: Lasts,
    pub(crate) track: &'a Track,
    pub(crate) protocol: &'a Arc<ProtocolLog>,
}

/// A server that answered.
pub(crate) struct Up {
    pub(crate) connection: Connection,
    pub(crate) greeting: Arc<Greeting>,
    pub(crate) tools: Vec<McpToolInfo>,
    /// Since before its tools were listed, so that no change of them is missed.
    pub(crate) inbound: Inbound,
    /// Of its box.
    pub(crate) incarnation: u64,
    pub(crate) launched: Launched,
    pub(crate) install: Option<CacheUse>,
}

/// A box in which the server can be started.
struct Prepared {
    incarnation: u64,
    launched: Launched,
    install: Option<CacheUse>,
}

/// What an install brought, and what to start of it.
struct Ready {
    program: Program,
    installed: Installed,
}

impl Start<'_> {
    /// The clock covers all of it, but for the time spent waiting for others.
    pub(crate) async fn run(&self) -> Result<Up, Fault> {
        let mut clock = StartClock::start(self.spec.settings.startup_timeout_sec);
        if self.track.phase() != Some(McpPhase::SessionCreate) {
            self.track.enter(McpPhase::SessionCreate, None);
        }
        self.look_for_boxes(&clock).await?;
        let prepared = self.prepare(&mut clock).await?;
        match self.speak(&clock, prepared).await {
            Ok(up) => {
                self.track.enter(McpPhase::Runtime, None);
                Ok(up)
            }
            Err(fault) => Err(greeting::with_stderr(self.kit, self.session, fault).await),
        }
    }

    async fn look_for_boxes(&self, clock: &StartClock) -> Result<(), Fault> {
        let look = self.kit.runtime.standing(&self.spec.settings);
        let standing = clock.within(McpPhase::SessionCreate, look).await?;
        let Some(fault) = no_boxes(standing) else {
            return Ok(());
        };
        self.track.enter(McpPhase::BoxUnavailable, None);
        Err(fault)
    }

    async fn prepare(&self, clock: &mut StartClock) -> Result<Prepared, Fault> {
        let phase = McpPhase::SessionCreate;
        let plan = clock.within(phase, self.plan()).await??;
        clock.within(phase, self.clear_the_place()).await??;
        let workspace = self.workspace(clock, &plan).await?;
        let Some(install) = &plan.install else {
            self.kit.reinstalled(self.session);
            let incarnation = self.make_box(clock, &workspace, None).await?;
            let program = plan
                .program(None)
                .map_err(|error| of_launch(phase, &error))?;
            return Ok(self.prepared(incarnation, program, None));
        };
        let key = self.key(clock, install, &workspace).await?;
        let wished = if self.kit.is_to_reinstall(self.session) {
            Reuse::Never
        } else {
            Reuse::IfThere
        };
        let ready = self
            .installed(clock, &plan, &key, &workspace, wished)
            .await?;
        if wished == Reuse::Never {
            self.kit.reinstalled(self.session);
        }
        let incarnation = self
            .make_box(clock, &workspace, Some(&ready.installed.place))
            .await?;
        if ready.installed.is_new || self.still_fits(clock, &ready.program).await? {
            return Ok(self.prepared(incarnation, ready.program, Some(ready.installed.used)));
        }
        // The image or the host has changed since: what was installed then does not run now. Others who
        // run from it keep it.
        self.remove_box(clock).await?;
        let old = ready.installed.used.key.clone();
        drop(ready);
        let ready = self
            .installed(clock, &plan, &key, &workspace, Reuse::Never)
            .await?;
        self.kit.drop_when_unused(old);
        let incarnation = self
            .make_box(clock, &workspace, Some(&ready.installed.place))
            .await?;
        Ok(self.prepared(incarnation, ready.program, Some(ready.installed.used)))
    }

    /// Names the install, by everything that decides over it.
    pub(crate) async fn key(
        &self,
        clock: &StartClock,
        install: &InstallPlan,
        workspace: &Workspace,
    ) -> Result<String, Fault> {
        let phase = McpPhase::SessionCreate;
        let spec = box_spec::of_installer(self.spec, self.session, &Workspace::Private);
        let kind = clock
            .within(phase, self.kit.runtime.resolve(spec))
            .await?
            .map_err(|error| Fault::of_runtime(phase, error))?;
        let install = install.clone();
        let place = workspace.place().map(Path::to_owned);
        let is_alone = self.is_alone(&install);
        let look = move || install.key(&kind, place.as_deref());
        match clock.within(phase, self.kit.on_host(look)).await? {
            Ok(Ok(key)) if is_alone => Ok(format!("{key}-{}", self.session)),
            Ok(Ok(key)) => Ok(key),
            Ok(Err(error)) => Err(of_launch(phase, &error)),
            Err(error) => Err(Fault::of_storage(
                phase,
                "looking at what is installed",
                &error,
            )),
        }
    }

    /// Whatever lies in a directory may run while it is installed, and leave something behind that no key
    /// tells of. What is only tried out must not reach a server that has secrets.
    fn is_alone(&self, install: &InstallPlan) -> bool {
        self.lasts == Lasts::ForATest && !install.parts.is_empty()
    }

    fn prepared(&self, incarnation: u64, program: Program, install: Option<CacheUse>) -> Prepared {
        Prepared {
            incarnation,
            launched: Launched::new(program, self.spec),
            install,
        }
    }

    async fn plan(&self) -> Result<LaunchPlan, Fault> {
        let spec = secret_words::filled(self.spec);
        let look = move || launch::plan(&spec, &HostFacts::of_this_host());
        match self.kit.on_host(look).await {
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
            Err(error) => Err(Fault::of_storage(
                McpPhase::SessionCreate,
                "looking at the server's command",
                &error,
            )),
        }
    }

    /// What is wrong with a file, and whether there is one at all, is only told to those who might have
    /// mounted it.
    async fn may_be_told(&self, error: &LaunchError) -> Fault {
        let Some(directory) = error.tells_of() else {
            return of_launch(McpPhase::SessionCreate, error);
        };
        match self.judge(directory, MountMode::Ro).await {
            Ok(_) => of_launch(McpPhase::SessionCreate, error),
            Err(refused) => refused,
        }
    }

    /// Asks the door about a directory before anything in it is used.
    async fn judge(&self, directory: &Path, mode: MountMode) -> Result<HostDirectory, Fault> {
        let phase = McpPhase::SessionCreate;
        let asked = directory.display().to_string();
        let spec = box_spec::to_judge(self.spec, self.session, &asked, mode);
        let judged = self.kit.runtime.judge(spec).await;
        judged
            .map_err(|error| Fault::of_runtime(phase, error))?
            .ok_or_else(|| Fault::new(phase, "the host_path could not be opened").for_good())
    }

    /// A box of an earlier start goes; somebody else's stays.
    async fn clear_the_place(&self) -> Result<(), Fault> {
        let of_runtime = |error| Fault::of_runtime(McpPhase::SessionCreate, error);
        let runtime = &self.kit.runtime;
        if runtime
            .session(self.session)
            .await
            .map_err(of_runtime)?
            .is_none()
        {
            return Ok(());
        }
        if !self.kit.journal.holds(self.session) {
            let session = self.session;
            let message = format!("a session `{session}` is there that is not this server's");
            let hint = "delete that session, or give the server another name".to_owned();
            return Err(Fault::new(McpPhase::SessionCreate, message)
                .with_hint(hint)
                .for_good());
        }
        self.kit.delete_box(self.session).await.map_err(of_runtime)
    }

    /// Never copies what could not be mounted.
    async fn workspace(&self, clock: &StartClock, plan: &LaunchPlan) -> Result<Workspace, Fault> {
        let phase = McpPhase::SessionCreate;
        let staged = match &plan.host_path {
            None => return Ok(Workspace::Private),
            Some(HostPath::Direct { path }) => {
                clock
                    .within(phase, self.judge(path, MountMode::Rw))
                    .await??;
                return Ok(Workspace::Direct(path.display().to_string()));
            }
            Some(HostPath::Staged(parts)) => parts.clone(),
        };
        let mut parts = Vec::new();
        let mut names = Vec::new();
        for staging in staged {
            let judged = self.judge(&staging.from, MountMode::Ro);
            let directory = clock.within(phase, judged).await??;
            names.push(staging.from.display().to_string());
            parts.push((staging, directory.handle));
        }
        let detail = format!("copying {}", names.join(", "));
        // A path may be what an argument was filled with.
        let detail = Secrets::of(&self.spec.env).hide(detail);
        self.track.enter(phase, Some(detail));
        let copied = clock
            .within(phase, self.kit.copy(self.session, parts))
            .await?;
        let copied = copied.map_err(|error| of_launch(phase, &error))?;
        if copied.left_out > 0 {
            self.track.notice([format!(
                "{} files or directories are not in the copy: they belong to another user, or are mounted there",
                copied.left_out
            )]);
        }
        Ok(Workspace::Copy(copied.place))
    }

    async fn installed(
        &self,
        clock: &mut StartClock,
        plan: &LaunchPlan,
        key: &str,
        workspace: &Workspace,
        reuse: Reuse,
    ) -> Result<Ready, Fault> {
        let Some(install) = &plan.install else {
            return Err(Fault::new(
                McpPhase::DepInstall,
                "there is nothing to install",
            ));
        };
        let mut installed = Install {
            kit: self.kit,
            spec: self.spec,
            plan: install,
            key,
            workspace,
            track: self.track,
            has_shown: AtomicBool::new(false),
        }
        .run(clock, reuse)
        .await?;
        if self.is_alone(install) {
            installed.used = installed.used.for_this_alone();
        }
        let (plan, at) = (plan.clone(), installed.place.clone());
        match blocking(move || Ok(plan.program(Some(&at)))).await {
            Ok(Ok(program)) => Ok(Ready { program, installed }),
            Ok(Err(error)) => Err(of_launch(McpPhase::DepInstall, &error)),
            Err(error) => Err(Fault::of_storage(
                McpPhase::DepInstall,
                "reading an install",
                &error,
            )),
        }
    }

    /// Comes back with which box of that name it is.
    async fn make_box(
        &self,
        clock: &StartClock,
        workspace: &Workspace,
        install: Option<&Path>,
    ) -> Result<u64, Fault> {
        let phase = McpPhase::SessionCreate;
        if self.track.phase() != Some(phase) {
            self.track.enter(phase, None);
        }
        let spec = box_spec::of_server(self.spec, self.session, workspace, self.lasts);
        let mounts = box_spec::mounts_of_server(workspace, install);
        let made = clock
            .within(phase, self.kit.create_box(self.session, spec, mounts))
            .await?
            .map_err(|error| Fault::of_runtime(phase, error))?;
        self.track.notice(made.notices);
        Ok(made.session.incarnation)
    }

    async fn remove_box(&self, clock: &StartClock) -> Result<(), Fault> {
        let phase = McpPhase::SessionCreate;
        clock
            .within(phase, self.kit.delete_box(self.session))
            .await?
            .map_err(|error| Fault::of_runtime(phase, error))
    }

    async fn still_fits(&self, clock: &StartClock, program: &Program) -> Result<bool, Fault> {
        let Some(check) = &program.check else {
            return Ok(true);
        };
        let phase = McpPhase::SessionCreate;
        let of_runtime = |error| Fault::of_runtime(phase, error);
        let script = SpecRequest {
            session_id: Some(self.session.clone()),
            cmd: check.clone(),
            timeout_sec: Some(CHECK_SECONDS),
            ..SpecRequest::default()
        };
        let checked = async {
            let mut begun = self.kit.runtime.exec(script).await?;
            loop {
                if let Running::Exited(exit) = begun.command.next().await? {
                    return Ok(exit);
                }
            }
        };
        let exit = clock.within(phase, checked).await?.map_err(of_runtime)?;
        // That says nothing about the install, which is not to be made anew for it.
        if exit.reason == Some(Reason::BoxGone) {
            return Err(Fault::new(
                phase,
                "its box went while its install was tried",
            ));
        }
        Ok(exit.exit_code == Some(0))
    }

    async fn speak(&self, clock: &StartClock, prepared: Prepared) -> Result<Up, Fault> {
        let runtime = &self.kit.runtime;
        let Prepared {
            incarnation,
            launched,
            install,
        } = prepared;
        let main = naming::main_process();
        self.track.enter(McpPhase::ProcessStart, None);
        let process = launched
            .process(main.clone(), self.spec)
            .validate()
            .map_err(|error| Fault::new(McpPhase::ProcessStart, error.to_string()).for_good())?;
        clock
            .within(McpPhase::ProcessStart, runtime.start(self.session, process))
            .await?
            .map_err(|error| Fault::of_runtime(McpPhase::ProcessStart, error))?;
        self.track.enter(McpPhase::RelayConnect, None);
        let wire = greeting::take_hold(self.kit, self.session, &main, clock).await?;
        let connection = Connection::open(wire, WireLimits::default(), Arc::clone(self.protocol));
        self.track.enter(McpPhase::McpInit, None);
        let mut greeting = greeting::greet(&connection, &GreetAs::boxwood(), clock).await?;
        let inbound = connection.inbound(Hears::Notifications);
        let mut tools = tools::list(&connection, &greeting, clock.left())
            .await
            .map_err(|error| greeting::of_list(error, clock))?;
        // What a trial says is for whoever reads its result, and for no client.
        if self.lasts == Lasts::ForATest {
            let secrets = Secrets::of(&self.spec.env);
            secrets.hide_in_greeting(&mut greeting);
            secrets.hide_in_tools(&mut tools);
        }
        Ok(Up {
            connection,
            greeting: Arc::new(greeting),
            tools,
            inbound,
            incarnation,
            launched,
            install,
        })
    }
}

/// A server never starts outside a box.
pub(crate) fn no_boxes(standing: Standing) -> Option<Fault> {
    match standing {
        Standing::Ready => None,
        Standing::Disabled => {
            let fault = Fault::new(McpPhase::BoxUnavailable, "box_disabled_in_config");
            let hint = "turn boxes on in the daemon's configuration".to_owned();
            Some(fault.with_hint(hint).for_good())
        }
        Standing::Unavailable { message, hint } => Some(Fault::no_boxes(message, hint)),
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
    if error.is_final() {
        fault.for_good()
    } else {
        fault
    }
}
