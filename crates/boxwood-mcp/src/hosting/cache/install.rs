//! Installs the packages of a server into the cache, in a temporary box.
//!
//! The installer does not see the server's variables.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use boxwood_agent::{Command, Running};
use boxwood_api::{ExecExit, ExecStatus, McpPhase, McpServerSpec, Reason, SpecRequest};
use tokio::time::Instant;

use super::CacheEntry;
use super::install_error::dep_install_error;
use super::partial_install::PartialInstall;
use super::usage::CacheRef;
use crate::hosting::HostingMount;
use crate::hosting::boxes::box_spec;
use crate::hosting::boxes::ids;
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
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

pub(crate) struct Install<'a> {
    pub(crate) context: &'a Arc<HostContext>,
    pub(crate) spec: &'a McpServerSpec,
    pub(crate) plan: &'a InstallPlan,
    /// Key of the cache entry. Equal keys mean equal installs.
    pub(crate) key: &'a str,
    pub(crate) progress_log: &'a ProgressLog,
    /// Set once the installer has written a line.
    pub(crate) has_shown: AtomicBool,
}

/// Whether an existing install may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    IfPresent,
    Never,
}

/// A complete install that is not removed while this exists.
pub(crate) struct Installed {
    pub(crate) place: PathBuf,
    pub(crate) used: CacheRef,
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
        let held = clock.stopped(cache.hold(self.key)).await;
        if reuse == Reuse::IfPresent
            && let Some(found) = self.find().await?
        {
            return Ok(self.installed(found, false));
        }
        self.context.make_room().await?;
        let partial = PartialInstall::begin(self.context, ids::install_session()).await?;
        let bytes = self.run_into(&partial, clock).await?;
        let (kept, _held) = partial.keep(self.key, bytes, held).await?;
        Ok(self.installed(kept, true))
    }

    async fn find(&self) -> Result<Option<CacheEntry>, Fault> {
        let (context, key) = (Arc::clone(self.context), self.key.to_owned());
        let found = blocking(move || {
            let found = context.cache.find(&key)?;
            if let Some(kept) = &found {
                context.cache.touch(&kept.name)?;
            }
            Ok(found)
        });
        found.await.map_err(|error| {
            Fault::from_storage(McpPhase::DepInstall, "finding an install", &error)
        })
    }

    /// Called with the key held, so that the entry is not removed before it is referenced.
    fn installed(&self, kept: CacheEntry, is_new: bool) -> Installed {
        Installed {
            used: self.context.use_install(&kept.name),
            place: kept.place,
            is_new,
        }
    }

    /// Returns the size, after the installer's box is removed.
    async fn run_into(&self, partial: &PartialInstall, clock: &StartClock) -> Result<u64, Fault> {
        let session = partial.installer();
        let mounts = vec![HostingMount {
            host_path: partial.place().to_owned(),
            mount_path: CACHE.to_owned(),
            is_writable: true,
        }];
        let of_session = |error| Fault::from_runtime(McpPhase::SessionCreate, error);
        let mut spec = box_spec::of_installer(self.spec, session, &self.plan.parts);
        let alone = box_spec::of_installer(self.spec, session, &[]);
        let kind = clock
            .within(McpPhase::SessionCreate, self.context.runtime.resolve(alone))
            .await?
            .map_err(of_session)?;
        spec.memory_mb = box_spec::installer_memory(self.spec, kind.memory_mb);
        let made = clock
            .within(
                McpPhase::SessionCreate,
                self.context.runtime.create(spec.clone(), mounts),
            )
            .await?
            .map_err(of_session)?;
        let of_install = |notice| format!("for the install: {notice}");
        self.progress_log
            .notice(made.notices.into_iter().map(of_install));
        self.progress_log.enter(McpPhase::DepInstall, None);
        self.progress_log.begin_install();
        let script = SpecRequest {
            cmd: self.plan.script.clone(),
            timeout_sec: Some(clock.left().as_secs().max(1)),
            env: self.plan.env.clone(),
            // A command that names mounts has to name all of the box, and hosting's own have no name.
            extra_mounts: Vec::new(),
            ..spec
        };
        let executed = clock.within(McpPhase::DepInstall, self.execute(script));
        tokio::select! {
            executed = executed => executed??,
            fault = self.outgrown(partial.place()) => return Err(fault),
        }
        // A process left in the box could still write to the finished install.
        self.context
            .delete_box(session)
            .await
            .map_err(|error| Fault::from_runtime(McpPhase::DepInstall, error))?;
        self.size(partial.place()).await
    }

    /// Resolves once the install exceeds its disk limit.
    async fn outgrown(&self, place: &Path) -> Fault {
        let mut pause = POLL_INTERVAL;
        loop {
            tokio::time::sleep(pause).await;
            let began = Instant::now();
            if let Err(fault) = self.size(place).await {
                return fault;
            }
            pause = pause_after(began.elapsed());
        }
    }

    async fn size(&self, place: &Path) -> Result<u64, Fault> {
        let most = self.context.settings.install_bytes;
        let place = place.to_owned();
        let bytes = blocking(move || boxwood_sys::tree::measure(&place, most)).await;
        let bytes = bytes.map_err(|error| {
            Fault::from_storage(McpPhase::DepInstall, "measuring an install", &error)
        })?;
        if bytes <= most {
            return Ok(bytes);
        }
        let words = format!(
            "Dependency install failed: it needs more than {} MiB of disk space",
            most >> 20
        );
        let hint = "choose a smaller package, or an image in box.image that already contains its large dependencies";
        Err(Fault::new(McpPhase::DepInstall, words)
            .with_hint(hint.to_owned())
            .not_retryable())
    }

    async fn execute(&self, script: SpecRequest) -> Result<(), Fault> {
        let from_runtime = |error| Fault::from_runtime(McpPhase::DepInstall, error);
        let begun = self
            .context
            .runtime
            .exec(script)
            .await
            .map_err(from_runtime)?;
        for notice in &begun.notices {
            self.progress_log.output(notice);
        }
        // The URL of a package index may contain a password.
        let secrets = Secrets::of(&self.spec.env);
        let mut output = InstallOutput::new();
        let exit = self
            .read_output(begun.command, &secrets, &mut output)
            .await?;
        if exit.status == ExecStatus::Completed && exit.exit_code == Some(0) {
            return Ok(());
        }
        Err(output.failure(&exit))
    }

    async fn read_output(
        &self,
        mut command: Box<dyn Command>,
        secrets: &Secrets,
        output: &mut InstallOutput,
    ) -> Result<ExecExit, Fault> {
        loop {
            let next = command.next().await;
            match next.map_err(|error| Fault::from_runtime(McpPhase::DepInstall, error))? {
                Running::Stdout(bytes) => {
                    let show =
                        |line: &str| self.show(&mut output.stdout_tail, &secrets.hide_line(line));
                    output.stdout.feed_in_turns(&bytes, show).await;
                }
                Running::Stderr(bytes) => {
                    let show =
                        |line: &str| self.show(&mut output.stderr_tail, &secrets.hide_line(line));
                    output.stderr.feed_in_turns(&bytes, show).await;
                }
                Running::Exited(exit) => {
                    output
                        .stdout
                        .end(|line| self.show(&mut output.stdout_tail, &secrets.hide_line(line)));
                    output
                        .stderr
                        .end(|line| self.show(&mut output.stderr_tail, &secrets.hide_line(line)));
                    return Ok(exit);
                }
            }
        }
    }

    /// Most scripts find nothing to install and write nothing, so the detail is set with the first line.
    fn show(&self, kept: &mut Tail, line: &str) {
        if !self.has_shown.swap(true, Ordering::Relaxed) {
            self.progress_log.detail(&self.plan.what);
        }
        kept.push(line);
        self.progress_log.output(line);
    }
}

struct InstallOutput {
    stdout: Lines,
    stderr: Lines,
    stdout_tail: Tail,
    stderr_tail: Tail,
}

impl InstallOutput {
    fn new() -> Self {
        Self {
            stdout: Lines::default(),
            stderr: Lines::default(),
            stdout_tail: Tail::new(KEPT_BYTES),
            stderr_tail: Tail::new(KEPT_BYTES),
        }
    }

    fn failure(&self, exit: &ExecExit) -> Fault {
        let stderr_tail = self.stderr_tail.text();
        let stdout_tail = self.stdout_tail.text();
        let useful = if stderr_tail.trim().is_empty() {
            &stdout_tail
        } else {
            &stderr_tail
        };
        let words = dep_install_error(exit.exit_code, useful);
        let fault = Fault::new(McpPhase::DepInstall, words);
        let retryable = if is_missing_package(useful) {
            Retryable::Once
        } else {
            Retryable::Yes
        };
        Fault { retryable, ..fault }.with_hint(hint(exit, useful))
    }
}

/// Keeps measuring a small part of the total work for large installs.
fn pause_after(scan: Duration) -> Duration {
    scan.saturating_mul(10).clamp(POLL_INTERVAL, LONGEST_PAUSE)
}

/// Returns true if the package or version does not exist, so that a retry cannot help.
fn is_missing_package(log: &str) -> bool {
    const WORDS: [&str; 10] = [
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
    WORDS.iter().any(|words| log.contains(words))
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
    "see the install log; the registry must be reachable from a box".to_owned()
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
    fn a_failure_shows_the_end_of_stderr() {
        let mut output = InstallOutput::new();
        output.stdout_tail.push("downloading");
        output.stderr_tail.push("error: no room");
        let fault = output.failure(&exit(2));
        let expected = "Dependency install failed (exit code 2): error: no room";
        assert_eq!(fault.message, expected);
        assert_eq!(fault.retryable, Retryable::Yes);
    }

    #[test]
    fn a_missing_package_is_retried_once() {
        let mut output = InstallOutput::new();
        output.stdout_tail.push("npm error code E404");
        let fault = output.failure(&exit(1));
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
        let fault = InstallOutput::new().failure(&killed);
        assert!(
            fault
                .hint
                .is_some_and(|hint| hint.contains("startup_timeout_sec"))
        );
    }
}
