//! A box under test: runs commands, calls file routes, adds mounts, and checks the outcome.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use boxwood_api::{Mechanism, MountMode};
use boxwood_policy::AdmittedSpec;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;

use crate::BoxSpec;
use boxwood_backend::{
    Exit, ExitStatus, FileAnswer, FileCall, FileError, FileFault, MountError, OpenFor, Process,
    ProcessControl, Sandbox, SpawnRequest, Stdio,
};

/// No mount takes longer to join, unless it hangs.
const JOIN_LIMIT: Duration = Duration::from_secs(20);

/// How long one command may take unless a case says otherwise.
const RUN_LIMIT: Duration = Duration::from_mins(1);

#[derive(Clone)]
pub struct TestBox {
    sandbox: Arc<dyn Sandbox>,
}

/// A command that has ended.
#[derive(Debug)]
pub struct CommandOutput {
    pub exit: Exit,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// A command that may still run; its output is collected meanwhile.
pub struct RunningCommand {
    pub stdin: Option<Box<dyn boxwood_backend::Input>>,
    pub control: Arc<dyn ProcessControl>,
    stdout: JoinHandle<std::io::Result<Vec<u8>>>,
    stderr: Option<JoinHandle<std::io::Result<Vec<u8>>>>,
}

/// A request with nothing special about it.
pub(crate) fn request(argv: &[&str]) -> SpawnRequest {
    SpawnRequest {
        argv: argv.iter().map(|&arg| arg.to_owned()).collect(),
        env: BTreeMap::new(),
        cwd: "/workspace".to_owned(),
        stdio: Stdio::Output,
        keep: None,
    }
}

pub(crate) fn shell(script: &str) -> SpawnRequest {
    request(&["/bin/sh", "-c", script])
}

impl TestBox {
    pub(crate) fn new(sandbox: Arc<dyn Sandbox>) -> Self {
        Self { sandbox }
    }

    pub fn sandbox(&self) -> &dyn Sandbox {
        self.sandbox.as_ref()
    }

    pub async fn process(&self, request: SpawnRequest) -> anyhow::Result<Process> {
        let argv = format!("{:.200?}", request.argv);
        self.sandbox
            .spawn(request)
            .await
            .with_context(|| format!("spawning {argv}"))
    }

    pub async fn spawn(&self, request: SpawnRequest) -> anyhow::Result<RunningCommand> {
        Ok(RunningCommand::collect(self.process(request).await?))
    }

    pub async fn run(&self, request: SpawnRequest) -> anyhow::Result<CommandOutput> {
        let argv = format!("{:.200?}", request.argv);
        let running = self.spawn(request).await?;
        running
            .finish()
            .await
            .with_context(|| format!("running {argv}"))
    }

    /// `/bin/sh -c` in `/workspace`.
    pub async fn sh(&self, script: &str) -> anyhow::Result<CommandOutput> {
        self.run(shell(script)).await
    }

    /// Standard output of a shell script. Every other exit than 0 is an error.
    pub async fn stdout_of(&self, script: &str) -> anyhow::Result<String> {
        self.sh(script).await?.text()
    }

    pub async fn file(&self, call: FileCall) -> anyhow::Result<FileAnswer> {
        let description = format!("{call:?}");
        self.try_file(call)
            .await?
            .with_context(|| format!("file call {description}"))
    }

    pub async fn try_file(&self, call: FileCall) -> anyhow::Result<Result<FileAnswer, FileError>> {
        let description = format!("{call:?}");
        tokio::time::timeout(Duration::from_secs(15), self.sandbox.file(call))
            .await
            .with_context(|| format!("no answer to {description}"))
    }

    /// The fault of a file call that must fail.
    pub async fn file_fault(&self, call: FileCall) -> anyhow::Result<FileFault> {
        let description = format!("{call:?}");
        match self.try_file(call).await? {
            Err(FileError::Fault { fault, .. }) => Ok(fault),
            Err(other) => bail!("{description}: {other:?} instead of a fault"),
            Ok(answer) => bail!("{description} was allowed: {answer:?}"),
        }
    }

    /// Adds a directory or file of the host to the running box, after policy admitted it.
    pub async fn mount(
        &self,
        source: &Path,
        mount_path: &str,
        mode: MountMode,
    ) -> anyhow::Result<()> {
        self.try_mount(source, mount_path, mode)
            .await?
            .with_context(|| format!("mounting at {mount_path}"))
    }

    /// The outer error is one of the test itself, the inner one is the backend's.
    pub async fn try_mount(
        &self,
        source: &Path,
        mount_path: &str,
        mode: MountMode,
    ) -> anyhow::Result<Result<(), MountError>> {
        let spec = BoxSpec::new()
            .extra(source, mount_path, mode)
            .admit("a mount that joins")?;
        self.mount_admitted(&spec).await
    }

    pub(crate) async fn mount_admitted(
        &self,
        spec: &AdmittedSpec,
    ) -> anyhow::Result<Result<(), MountError>> {
        for mount in spec.extra_mounts() {
            let joining = tokio::time::timeout(JOIN_LIMIT, self.sandbox.mount(mount));
            if let Err(error) = joining.await.context("a mount did not join in time")? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    pub async fn write(&self, path: &str, content: &[u8]) -> anyhow::Result<()> {
        let result = self
            .file(FileCall::Open {
                path: path.to_owned(),
                how: OpenFor::Write { mode: 0o644 },
            })
            .await?;
        let FileAnswer::Opened { mut file, .. } = result else {
            bail!("an open answered {result:?}")
        };
        std::io::Write::write_all(&mut file, content)?;
        Ok(())
    }

    pub async fn read(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let result = self
            .file(FileCall::Open {
                path: path.to_owned(),
                how: OpenFor::Read,
            })
            .await?;
        let FileAnswer::Opened { mut file, .. } = result else {
            bail!("an open answered {result:?}")
        };
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut content)?;
        Ok(content)
    }

    /// Checks that the box still runs commands, so its init and the backend work.
    pub async fn assert_responsive(&self) -> anyhow::Result<()> {
        ensure!(self.sandbox.is_alive(), "the box is dead");
        let output = tokio::time::timeout(Duration::from_secs(20), self.stdout_of("echo alive"))
            .await
            .context("the box does not answer")??;
        ensure!(output == "alive\n", "the output is {output:?}");
        Ok(())
    }

    /// Checks the basic isolation. Called before commands that would harm the host if the isolation were broken.
    pub async fn assert_isolated(&self) -> anyhow::Result<()> {
        if self.sandbox.label().has(Mechanism::KernelBoundary) {
            // Namespaces of another kernel cannot be compared, but its version differs.
            let inside = self.stdout_of("uname -rv").await?;
            let host = rustix::system::uname();
            let release = host.release().to_string_lossy().into_owned();
            let outside = format!("{release} {}", host.version().to_string_lossy());
            ensure!(
                inside.trim() != outside,
                "the box is on the host's own kernel: {outside}"
            );
            return Ok(());
        }
        for name in ["pid", "mnt"] {
            let inside = self
                .stdout_of(&format!("readlink /proc/self/ns/{name}"))
                .await?;
            let outside = std::fs::read_link(format!("/proc/self/ns/{name}"))?;
            ensure!(
                inside.trim() != outside.to_string_lossy(),
                "the box is in the host's own {name} namespace"
            );
        }
        // A uid map names ids of the parent namespace, which is the host's if the daemon runs as root. Boxes of other
        // users never have the uid of root there.
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let output = self.stdout_of("id -u; cat /proc/self/uid_map").await?;
        let mut lines = output.lines();
        let uid: u64 = lines.next().unwrap_or_default().trim().parse()?;
        let as_root = lines.any(|line| {
            let ids: Vec<u64> = line
                .split_whitespace()
                .filter_map(|id| id.parse().ok())
                .collect();
            matches!(ids.as_slice(), [inside, outside, count]
                if *inside <= uid && uid < inside + count && outside + uid - inside == 0)
        });
        ensure!(!as_root, "commands have the uid of the host's root");
        Ok(())
    }

    pub async fn stop(&self) -> anyhow::Result<()> {
        tokio::time::timeout(Duration::from_secs(30), self.sandbox.stop())
            .await
            .context("the box did not stop in time")??;
        Ok(())
    }
}

impl RunningCommand {
    fn collect(process: Process) -> Self {
        Self {
            stdin: process.stdin,
            control: process.control,
            stdout: tokio::spawn(read_all(process.stdout)),
            stderr: process.stderr.map(|stderr| tokio::spawn(read_all(stderr))),
        }
    }

    /// Feeds stdin, closes it, and waits for the end.
    pub async fn finish_with(mut self, input: &[u8]) -> anyhow::Result<CommandOutput> {
        let mut stdin = self.stdin.take().context("this process has no stdin")?;
        let input = input.to_vec();
        let feeding = tokio::spawn(async move {
            stdin.write_all(&input).await?;
            stdin.flush().await
        });
        let ran = self.finish().await?;
        feeding.await?.context("writing to stdin")?;
        Ok(ran)
    }

    pub async fn finish(self) -> anyhow::Result<CommandOutput> {
        self.finish_within(RUN_LIMIT).await
    }

    pub async fn finish_within(self, limit: Duration) -> anyhow::Result<CommandOutput> {
        let Self {
            control,
            stdout,
            stderr,
            stdin,
        } = self;
        let ended = async {
            let exit = control.wait().await;
            let stdout = stdout.await?.context("reading stdout")?;
            let stderr = match stderr {
                Some(stderr) => stderr.await?.context("reading stderr")?,
                None => Vec::new(),
            };
            anyhow::Ok(CommandOutput {
                exit,
                stdout,
                stderr,
            })
        };
        let ran = tokio::time::timeout(limit, ended)
            .await
            .with_context(|| format!("no end after {} s", limit.as_secs()))?;
        drop(stdin);
        ran
    }
}

async fn read_all(mut stream: Box<dyn AsyncRead + Send + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes).await {
        Ok(_) => Ok(bytes),
        // A terminal's master reports EIO after its slave was closed.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
            Ok(bytes)
        }
        Err(error) => Err(error),
    }
}

impl CommandOutput {
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    pub fn code(&self) -> Option<i32> {
        match self.exit.status {
            ExitStatus::Code(code) => Some(code),
            ExitStatus::Signal(_) | ExitStatus::BoxGone => None,
        }
    }

    /// Standard output of a command that must have succeeded.
    pub fn text(&self) -> anyhow::Result<String> {
        ensure!(
            self.exit.status == ExitStatus::Code(0),
            "ended with {:?}; stdout {:?}, stderr {:?}",
            self.exit,
            self.out(),
            self.err()
        );
        Ok(self.out())
    }
}
