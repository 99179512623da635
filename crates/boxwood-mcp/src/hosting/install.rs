//! Gets a server's packages into the cache, in a box that is gone afterwards.
//!
//! Comes in: a plan with a script. Goes out: the directory of a whole install, and every line the
//! installers wrote. Never here: the server's own variables; installers have no use for secrets.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use boxwood_agent::{Command, Running};
use boxwood_api::{ExecExit, ExecStatus, McpPhase, McpServerSpec, Reason, SpecRequest};
use tokio::time::Instant;

use super::OwnMount;
use super::box_spec::{self, Workspace};
use super::cache::Kept;
use super::cache_use::CacheUse;
use super::clock::StartClock;
use super::fault::Fault;
use super::kit::{Kit, blocking};
use super::launch::{CACHE, InstallPlan, dep_install_error};
use super::measure::measure;
use super::naming;
use super::redact::Secrets;
use super::retry::Mends;
use super::tail::{Lines, Tail};
use super::track::Track;
use super::unfinished::Unfinished;

/// Of what the installer said, for the error.
const KEPT_BYTES: usize = 16 * 1024;
/// How often the room that an install takes is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// However long a look takes: what is written meanwhile is on the disk already.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

pub(crate) struct Install<'a> {
    pub(crate) kit: &'a Arc<Kit>,
    pub(crate) spec: &'a McpServerSpec,
    pub(crate) plan: &'a InstallPlan,
    /// Names the finished install. The same one only where the install would come out the same.
    pub(crate) key: &'a str,
    pub(crate) workspace: &'a Workspace,
    pub(crate) track: &'a Track,
    /// Whether the installer has said anything yet.
    pub(crate) has_shown: AtomicBool,
}

/// Whether an install that is there already will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    IfThere,
    Never,
}

/// A whole install that stays while this is held.
pub(crate) struct Installed {
    pub(crate) place: PathBuf,
    pub(crate) used: CacheUse,
    /// Made just now, for this very box.
    pub(crate) is_new: bool,
}

impl Install<'_> {
    /// Two servers that need the same install it once; the second waits at no cost to its own time.
    pub(crate) async fn run(
        &self,
        clock: &mut StartClock,
        reuse: Reuse,
    ) -> Result<Installed, Fault> {
        let cache = &self.kit.cache;
        let held = clock.stopped(cache.hold(self.key)).await;
        if reuse == Reuse::IfThere
            && let Some(found) = self.find().await?
        {
            return Ok(self.installed(found, false));
        }
        self.kit.make_room().await?;
        let unfinished = Unfinished::begin(self.kit, naming::install_session()).await?;
        let bytes = self.run_into(&unfinished, clock).await?;
        let (kept, _held) = unfinished.keep(self.key, bytes, held).await?;
        Ok(self.installed(kept, true))
    }

    async fn find(&self) -> Result<Option<Kept>, Fault> {
        let (kit, key) = (Arc::clone(self.kit), self.key.to_owned());
        let found = blocking(move || {
            let found = kit.cache.find(&key)?;
            if let Some(kept) = &found {
                kit.cache.touch(&kept.name)?;
            }
            Ok(found)
        });
        found
            .await
            .map_err(|error| Fault::of_storage(McpPhase::DepInstall, "finding an install", &error))
    }

    /// Under the key's lock, so that nobody removes it in between.
    fn installed(&self, kept: Kept, is_new: bool) -> Installed {
        Installed {
            used: self.kit.use_install(&kept.name),
            place: kept.place,
            is_new,
        }
    }

    /// Comes back with its size, once its box is gone.
    async fn run_into(&self, unfinished: &Unfinished, clock: &StartClock) -> Result<u64, Fault> {
        let session = unfinished.installer();
        let (workspace, mut mounts) = self.workspace.to_install(&self.plan.parts);
        mounts.push(OwnMount {
            host_path: unfinished.place().to_owned(),
            mount_path: CACHE.to_owned(),
            is_writable: true,
        });
        let of_session = |error| Fault::of_runtime(McpPhase::SessionCreate, error);
        let mut spec = box_spec::of_installer(self.spec, session, &workspace);
        let alone = box_spec::of_installer(self.spec, session, &Workspace::Private);
        let kind = clock
            .within(McpPhase::SessionCreate, self.kit.runtime.resolve(alone))
            .await?
            .map_err(of_session)?;
        spec.memory_mb = box_spec::installer_memory(self.spec, kind.memory_mb);
        let made = clock
            .within(
                McpPhase::SessionCreate,
                self.kit.create_box(session, spec.clone(), mounts),
            )
            .await?
            .map_err(of_session)?;
        let of_install = |notice| format!("for the install: {notice}");
        self.track.notice(made.notices.into_iter().map(of_install));
        self.track.enter(McpPhase::DepInstall, None);
        self.track.begin_install();
        let script = SpecRequest {
            cmd: self.plan.script.clone(),
            timeout_sec: Some(clock.left().as_secs().max(1)),
            env: self.plan.env.clone(),
            ..spec
        };
        let executed = clock.within(McpPhase::DepInstall, self.execute(script));
        tokio::select! {
            executed = executed => executed??,
            fault = self.outgrown(unfinished.place()) => return Err(fault),
        }
        // What still runs in it could write into the install after it was kept.
        self.kit
            .delete_box(session)
            .await
            .map_err(|error| Fault::of_runtime(McpPhase::DepInstall, error))?;
        self.size(unfinished.place()).await
    }

    /// Resolves once the install takes more room than it may.
    async fn outgrown(&self, place: &Path) -> Fault {
        let mut pause = LOOK_EVERY;
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
        let most = self.kit.settings.install_bytes;
        let place = place.to_owned();
        let bytes = blocking(move || measure(&place, most)).await;
        let bytes = bytes.map_err(|error| {
            Fault::of_storage(McpPhase::DepInstall, "measuring an install", &error)
        })?;
        if bytes <= most {
            return Ok(bytes);
        }
        let words = format!(
            "Dependency install failed: it takes more than {} MiB on the disk",
            most >> 20
        );
        let hint = "choose a smaller package, or an image in box.image that brings what is large";
        Err(Fault::new(McpPhase::DepInstall, words)
            .with_hint(hint.to_owned())
            .for_good())
    }

    async fn execute(&self, script: SpecRequest) -> Result<(), Fault> {
        let of_runtime = |error| Fault::of_runtime(McpPhase::DepInstall, error);
        let begun = self.kit.runtime.exec(script).await.map_err(of_runtime)?;
        for notice in &begun.notices {
            self.track.output(notice);
        }
        // An address of a registry may hold a password.
        let secrets = Secrets::of(&self.spec.env);
        let mut heard = Heard::new();
        let exit = self.listen(begun.command, &secrets, &mut heard).await?;
        if exit.status == ExecStatus::Completed && exit.exit_code == Some(0) {
            return Ok(());
        }
        Err(heard.failure(&exit))
    }

    async fn listen(
        &self,
        mut command: Box<dyn Command>,
        secrets: &Secrets,
        heard: &mut Heard,
    ) -> Result<ExecExit, Fault> {
        loop {
            let next = command.next().await;
            match next.map_err(|error| Fault::of_runtime(McpPhase::DepInstall, error))? {
                Running::Stdout(bytes) => {
                    let show = |line: &str| self.show(&mut heard.said, &secrets.hide_line(line));
                    heard.stdout.feed_in_turns(&bytes, show).await;
                }
                Running::Stderr(bytes) => {
                    let show =
                        |line: &str| self.show(&mut heard.complained, &secrets.hide_line(line));
                    heard.stderr.feed_in_turns(&bytes, show).await;
                }
                Running::Exited(exit) => {
                    heard
                        .stdout
                        .end(|line| self.show(&mut heard.said, &secrets.hide_line(line)));
                    heard
                        .stderr
                        .end(|line| self.show(&mut heard.complained, &secrets.hide_line(line)));
                    return Ok(exit);
                }
            }
        }
    }

    /// Most scripts find nothing to install and say nothing, so the first line tells that this one does.
    fn show(&self, kept: &mut Tail, line: &str) {
        if !self.has_shown.swap(true, Ordering::Relaxed) {
            self.track.detail(&self.plan.what);
        }
        kept.push(line);
        self.track.output(line);
    }
}

struct Heard {
    stdout: Lines,
    stderr: Lines,
    said: Tail,
    complained: Tail,
}

impl Heard {
    fn new() -> Self {
        Self {
            stdout: Lines::default(),
            stderr: Lines::default(),
            said: Tail::new(KEPT_BYTES),
            complained: Tail::new(KEPT_BYTES),
        }
    }

    fn failure(&self, exit: &ExecExit) -> Fault {
        let complained = self.complained.text();
        let said = self.said.text();
        let useful = if complained.trim().is_empty() {
            &said
        } else {
            &complained
        };
        let words = dep_install_error(exit.exit_code, useful);
        let fault = Fault::new(McpPhase::DepInstall, words);
        let mends = if is_wish_nobody_can_fulfil(useful) {
            Mends::HardlyTwice
        } else {
            Mends::Perhaps
        };
        Fault { mends, ..fault }.with_hint(hint(exit, useful))
    }
}

/// Looking costs more the larger an install is, and is to stay a small part of the work.
fn pause_after(look: Duration) -> Duration {
    look.saturating_mul(10).clamp(LOOK_EVERY, LONGEST_PAUSE)
}

/// What installers say when no network and no luck could help: there is no such package or version.
fn is_wish_nobody_can_fulfil(log: &str) -> bool {
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
        Some(Reason::DiskQuota) => Some("there is too little room for the install"),
        Some(Reason::Timeout) => Some(
            "give it more time with `box.startup_timeout_sec`, as far as the operator's `max_timeout_sec` goes",
        ),
        _ => None,
    };
    if let Some(hint) = by_reason {
        return hint.to_owned();
    }
    if is_wish_nobody_can_fulfil(log) {
        return "check the name and version of the package; `with` adds constraints".to_owned();
    }
    "the install log has all of it; the registry must be reachable from a box".to_owned()
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
    fn the_next_look_comes_soon_however_long_the_last_one_took() {
        for (look_ms, pause_ms) in [(1, 2_000), (500, 5_000), (60_000, 10_000)] {
            let look = Duration::from_millis(look_ms);
            assert_eq!(pause_after(look), Duration::from_millis(pause_ms));
        }
    }

    #[test]
    fn a_failure_shows_the_end_of_what_the_installer_complained_about() {
        let mut heard = Heard::new();
        heard.said.push("downloading");
        heard.complained.push("error: no room");
        let fault = heard.failure(&exit(2));
        let expected = "Dependency install failed (exit code 2): error: no room";
        assert_eq!(fault.message, expected);
        assert_eq!(fault.mends, Mends::Perhaps);
    }

    #[test]
    fn a_package_that_is_not_there_is_hardly_tried_twice() {
        let mut heard = Heard::new();
        heard.said.push("npm error code E404");
        let fault = heard.failure(&exit(1));
        assert_eq!(fault.mends, Mends::HardlyTwice);
        assert!(fault.message.contains("E404"), "{}", fault.message);
        assert!(
            fault
                .hint
                .is_some_and(|hint| hint.contains("name and version"))
        );
    }

    #[test]
    fn an_end_by_a_limit_names_the_limit() {
        let killed = ExecExit {
            exit_code: None,
            status: ExecStatus::TimedOut,
            reason: Some(Reason::Timeout),
            duration_ms: 1,
            notices: Vec::new(),
        };
        let fault = Heard::new().failure(&killed);
        assert!(
            fault
                .hint
                .is_some_and(|hint| hint.contains("startup_timeout_sec"))
        );
    }
}
