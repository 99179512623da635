//! Installs the packages of a server into the cache, in a temporary box.
//!
//! The installer does not see the server's variables.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use boxwood_agent::Running;
use boxwood_api::{ExecExit, ExecStatus, McpPhase, McpServerSpec, Reason, SpecRequest};
use tokio::time::Instant;

use super::install_error::dep_install_error;
use super::usage::CacheRef;
use crate::hosting::HostingMount;
use crate::hosting::boxes::box_spec;
use crate::hosting::boxes::ids;
use crate::hosting::boxes::temporary_box::TemporaryBox;
use crate::hosting::context::{HostContext, blocking};
use crate::hosting::launch::{CACHE, InstallPlan};
use crate::hosting::logs::progress::ProgressLog;
use crate::hosting::logs::redact::Secrets;
use crate::hosting::logs::tail::{Lines, Tail};
use crate::hosting::supervisor::deadline::StartClock;
use crate::hosting::supervisor::fault::Fault;
use crate::hosting::supervisor::retry::Retryable;

/// Installer output that is kept for the error message.
const KEPT_BYTES: usize = 16 * 1024;
/// How often the size of an install in progress is measured.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Upper bound of the interval, however long a measurement takes.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) struct Install<'a> {
    pub(crate) context: &'a Arc<HostContext>,
    pub(crate) spec: &'a McpServerSpec,
    pub(crate) plan: &'a InstallPlan,
    /// Key of the cache entry. Equal keys mean equal installs.
    pub(crate) key: &'a str,
    pub(crate) progress_log: &'a ProgressLog,
}

/// Whether an existing install may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    IfPresent,
    Never,
}

/// A complete install that is not removed while this exists.
pub(crate) struct Installed {
    pub(crate) directory: PathBuf,
    pub(crate) cache_ref: CacheRef,
    /// Created for this start.
    pub(crate) is_new: bool,
}

impl Install<'_> {
    /// Servers with the same key install once. Waiting for another install does not count against the start
    /// timeout.
    pub(crate) async fn run(
        &self,
        clock: &mut StartClock,
        reuse: Reuse,
    ) -> Result<Installed, Fault> {
        let cache = &self.context.cache;
        let held = clock.paused(cache.hold(self.key)).await;
        if reuse == Reuse::IfPresent
            && let Some(name) = self.find().await?
        {
            return Ok(self.installed(&name, false));
        }
        self.context.make_room().await?;
        let context = Arc::clone(self.context);
        let creating = storage("creating an install directory", move || {
            context.cache.create_directory()
        });
        let directory = creating.await?;
        let mut installer = TemporaryBox::named(self.context, ids::install_session())
            .with_directory(directory.clone());
        let bytes = self.run_into(&mut installer, &directory, clock).await?;
        // The task owns the directory from here on, and the key stays held until the entry exists, even if the
        // caller stops waiting.
        installer.keep_directory();
        let (context, key) = (Arc::clone(self.context), self.key.to_owned());
        let storing = storage("storing an install", move || {
            let stored = context.cache.keep(&directory, &key, bytes);
            if stored.is_err() {
                let _ = context.cache.discard(&directory);
            }
            stored.map(|name| (name, held))
        });
        let (name, _held) = storing.await?;
        Ok(self.installed(&name, true))
    }

    async fn find(&self) -> Result<Option<String>, Fault> {
        let (context, key) = (Arc::clone(self.context), self.key.to_owned());
        let finding = storage("finding an install", move || {
            let found = context.cache.find(&key)?;
            if let Some(name) = &found {
                context.cache.touch(name)?;
            }
            Ok(found)
        });
        finding.await
    }

    /// References an entry. The caller holds the key, so that the entry is not removed before that.
    fn installed(&self, name: &str, is_new: bool) -> Installed {
        Installed {
            cache_ref: self.context.use_install(name),
            directory: self.context.cache.path(name),
            is_new,
        }
    }

    /// Returns the size, after the installer's box is removed.
    async fn run_into(
        &self,
        installer: &mut TemporaryBox,
        directory: &Path,
        clock: &StartClock,
    ) -> Result<u64, Fault> {
        let session = installer.session();
        let mounts = vec![HostingMount {
            host_path: directory.to_owned(),
            mount_path: CACHE.to_owned(),
            is_writable: true,
        }];
        let runtime = &self.context.runtime;
        let mut spec = box_spec::of_installer(self.spec, session, &self.plan.parts);
        let without_directories = box_spec::of_installer(self.spec, session, &[]);
        let resolving = runtime.resolve(without_directories);
        let kind = clock.call(McpPhase::SessionCreate, resolving).await?;
        spec.memory_mb = box_spec::installer_memory(self.spec, kind.memory_mb);
        let creating = runtime.create(spec.clone(), mounts);
        let created = clock.call(McpPhase::SessionCreate, creating).await?;
        let of_install = |notice| format!("for the install: {notice}");
        self.progress_log
            .notice(created.notices.into_iter().map(of_install));
        let what = Some(self.plan.what.clone());
        self.progress_log.enter(McpPhase::DepInstall, what);
        self.progress_log.begin_install();
        let script = SpecRequest {
            cmd: self.plan.script.clone(),
            timeout_sec: Some(clock.remaining().as_secs().max(1)),
            env: self.plan.env.clone(),
            // A command may omit its mounts. If it lists some, it must list all mounts of the box, and those that
            // hosting itself adds cannot be listed.
            extra_mounts: Vec::new(),
            ..spec
        };
        let executed = clock.within(McpPhase::DepInstall, self.execute(script));
        tokio::select! {
            executed = executed => executed??,
            fault = self.limit_exceeded(directory) => return Err(fault),
        }
        // A process left in the box could still write to the finished install.
        installer
            .delete()
            .await
            .map_err(|error| Fault::from_runtime(McpPhase::DepInstall, error))?;
        self.size(directory).await
    }

    /// Resolves once the install exceeds its disk limit.
    async fn limit_exceeded(&self, directory: &Path) -> Fault {
        let mut pause = POLL_INTERVAL;
        loop {
            tokio::time::sleep(pause).await;
            let started_at = Instant::now();
            if let Err(fault) = self.size(directory).await {
                return fault;
            }
            pause = pause_after(started_at.elapsed());
        }
    }

    async fn size(&self, directory: &Path) -> Result<u64, Fault> {
        let limit = self.context.settings.install_bytes;
        let directory = directory.to_owned();
        let measuring = move || boxwood_sys::tree::measure(&directory, limit);
        let bytes = storage("measuring an install", measuring).await?;
        if bytes <= limit {
            return Ok(bytes);
        }
        let message = format!(
            "Dependency install failed: it needs more than {} MiB of disk space",
            limit >> 20
        );
        let hint = "choose a smaller package, or an image in box.image that already contains its large dependencies";
        Err(Fault::new(McpPhase::DepInstall, message)
            .with_hint(hint.to_owned())
            .not_retryable())
    }

    async fn execute(&self, script: SpecRequest) -> Result<(), Fault> {
        let from_runtime = |error| Fault::from_runtime(McpPhase::DepInstall, error);
        let started = self.context.runtime.exec(script).await;
        let mut started = started.map_err(from_runtime)?;
        for notice in &started.notices {
            self.progress_log.output(notice);
        }
        // The URL of a package index may contain a password.
        let secrets = Secrets::of(&self.spec.env);
        let (mut stdout, mut stderr) = (Output::default(), Output::default());
        let exit = loop {
            let (output, bytes) = match started.command.next().await.map_err(from_runtime)? {
                Running::Stdout(bytes) => (&mut stdout, bytes),
                Running::Stderr(bytes) => (&mut stderr, bytes),
                Running::Exited(exit) => break exit,
            };
            let show = |line: &str| self.show(&mut output.tail, &secrets.hide_line(line));
            output.lines.feed_in_chunks(&bytes, show).await;
        };
        for output in [&mut stdout, &mut stderr] {
            let show = |line: &str| self.show(&mut output.tail, &secrets.hide_line(line));
            output.lines.end(show);
        }
        if exit.status == ExecStatus::Completed && exit.exit_code == Some(0) {
            return Ok(());
        }
        let stderr = stderr.tail.text();
        let is_useful = !stderr.trim().is_empty();
        let log = if is_useful {
            stderr
        } else {
            stdout.tail.text()
        };
        Err(failure(&exit, &log))
    }

    fn show(&self, tail: &mut Tail, line: &str) {
        tail.push(line);
        self.progress_log.output(line);
    }
}

/// One output stream of the installer.
struct Output {
    lines: Lines,
    /// For the error message.
    tail: Tail,
}

impl Default for Output {
    fn default() -> Self {
        Self {
            lines: Lines::default(),
            tail: Tail::new(KEPT_BYTES),
        }
    }
}

fn failure(exit: &ExecExit, log: &str) -> Fault {
    let retryable = if is_missing_package(log) {
        Retryable::Once
    } else {
        Retryable::Yes
    };
    let message = dep_install_error(exit.exit_code, log);
    let fault = Fault::new(McpPhase::DepInstall, message).with_hint(hint(exit, log));
    Fault { retryable, ..fault }
}

/// File system work off the async threads.
async fn storage<T: Send + 'static>(
    doing: &str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Fault> {
    let result = blocking(work).await;
    result.map_err(|error| Fault::from_storage(McpPhase::DepInstall, doing, &error))
}

/// The pause until the next measurement. It grows with the time that a measurement takes, so that measuring a large
/// install remains a small part of the work.
fn pause_after(scan: Duration) -> Duration {
    scan.saturating_mul(10)
        .clamp(POLL_INTERVAL, MAX_POLL_INTERVAL)
}

/// Returns true if the package or version does not exist, so that a retry cannot help.
fn is_missing_package(log: &str) -> bool {
    const MESSAGES: [&str; 10] = [
        "no solution found when resolving",
        "because there are no versions of",
        "was not found in the package registry",
        "no matching distribution found",
        "resolutionimpossible",
        "requires a different python",
        "npm error code e404",
        "npm error code etarget",
        "npm error code eresolve",
        "npm error code ebadengine",
    ];
    let log = log.to_ascii_lowercase();
    MESSAGES.iter().any(|message| log.contains(message))
}

fn hint(exit: &ExecExit, log: &str) -> String {
    let by_reason = match &exit.reason {
        Some(Reason::Oom) => Some("the install needs more memory: raise `box.memory_mb`"),
        Some(Reason::DiskQuota) => Some("not enough disk space for the install"),
        Some(Reason::Timeout) => {
            Some("raise `box.startup_timeout_sec` (limited by the operator's `max_timeout_sec`)")
        }
        _ => None,
    };
    if let Some(hint) = by_reason {
        return hint.to_owned();
    }
    if is_missing_package(log) {
        return "check the name and version of the package; `with` adds constraints".to_owned();
    }
    "see the install log (`boxwood mcp logs NAME --install`); the registry must be reachable from a box"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(code: i32) -> ExecExit {
        ExecExit {
            exit_code: Some(code),
            status: ExecStatus::Completed,
            reason: None,
            duration_ms: 1,
            notices: Vec::new(),
        }
    }

    #[test]
    fn the_measuring_interval_is_bounded() {
        for (scan_ms, pause_ms) in [(1, 2_000), (500, 5_000), (60_000, 10_000)] {
            let scan = Duration::from_millis(scan_ms);
            assert_eq!(pause_after(scan), Duration::from_millis(pause_ms));
        }
    }

    #[test]
    fn a_failure_shows_the_end_of_the_output() {
        let fault = failure(&exit(2), "error: no room");
        let expected = "Dependency install failed (exit code 2): error: no room";
        assert_eq!(fault.message, expected);
        assert_eq!(fault.retryable, Retryable::Yes);
    }

    #[test]
    fn a_missing_package_is_retried_once() {
        let fault = failure(&exit(1), "npm error code E404");
        assert_eq!(fault.retryable, Retryable::Once);
        assert!(fault.message.contains("E404"), "{}", fault.message);
        assert!(
            fault
                .hint
                .is_some_and(|hint| hint.contains("name and version"))
        );
    }

    #[test]
    fn a_limit_is_named_in_the_hint() {
        let killed = ExecExit {
            exit_code: None,
            status: ExecStatus::TimedOut,
            reason: Some(Reason::Timeout),
            duration_ms: 1,
            notices: Vec::new(),
        };
        let fault = failure(&killed, "");
        assert!(
            fault
                .hint
                .is_some_and(|hint| hint.contains("startup_timeout_sec"))
        );
    }
}
