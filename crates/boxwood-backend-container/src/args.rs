//! Every argument vector of either engine, in one place.
//!
//! Comes in: values, checked or not. Goes out: vectors in which each value is an argument of its own
//! or the rest of one behind a word of ours, so that none can be taken for an option. Never here: a
//! path that a client chose; mounts are put into the box from outside.

use std::ffi::OsString;
use std::path::Path;

use boxwood_init::{JOIN, MEETING_PLACE, PROGRAM_NAME};
use boxwood_local::PROCESSES_OF_OURS;
use boxwood_policy::Limits;

use crate::settings::Engine;

/// How the engine maps the box's users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Users {
    /// As the engine does it by itself.
    Engine,
    /// Ids from `first` on, for a root daemon's Podman.
    Range { first: u32 },
    /// The caller is the box's user, for an ordinary user's Podman.
    Caller,
}

/// One container, as the engine is to make it.
pub(crate) struct Run<'a> {
    pub(crate) engine: Engine,
    pub(crate) name: &'a str,
    pub(crate) labels: &'a [(String, String)],
    pub(crate) image: &'a str,
    pub(crate) runtime: Option<&'a str>,
    pub(crate) limits: Option<Limits>,
    pub(crate) read_only: bool,
    pub(crate) users: Users,
    /// The directory with init and its socket.
    pub(crate) meeting: &'a Path,
}

/// What init has while it gets ready; it keeps the first three, and commands have none.
const CAPABILITIES: [&str; 4] = ["SETUID", "SETGID", "KILL", "SETPCAP"];

/// A new container that runs in the background and goes when its init ends.
pub(crate) fn run(run: &Run<'_>) -> Vec<OsString> {
    let mut args = Args::new(["run", "--detach", "--rm"]);
    args.option("--name", run.name);
    for (key, value) in run.labels {
        args.option("--label", format!("{key}={value}"));
    }
    args.option("--pull", "never");
    args.option("--hostname", "box");
    args.option("--network", "none");
    args.option("--ipc", "private");
    args.option("--cgroupns", "private");
    args.option("--log-driver", "none");
    // Our init is the first process, whatever the engine is configured to put before it; and nothing
    // of the image runs beside it.
    args.flag("--init=false");
    args.flag("--no-healthcheck");
    args.option("--user", "0:0");
    args.option("--workdir", "/");
    args.option("--cap-drop", "ALL");
    for capability in CAPABILITIES {
        args.option("--cap-add", capability);
    }
    args.option("--security-opt", "no-new-privileges");
    // Init puts on the filter of every other box before the first command. One of the engine's below it
    // would hide which call was refused, and would refuse `clone3`, by which commands are born in their
    // cgroup.
    args.option("--security-opt", "seccomp=unconfined");
    if let Some(limits) = &run.limits {
        let memory = format!("{}m", limits.memory_mb);
        args.option("--memory", &*memory);
        args.option("--memory-swap", &*memory);
        args.option("--cpus", format!("{:.3}", limits.cpus));
        let pids = limits.pids.saturating_add(PROCESSES_OF_OURS);
        args.option("--pids-limit", pids.to_string());
    }
    if run.read_only {
        args.flag("--read-only");
    }
    match run.engine {
        Engine::Docker => {}
        Engine::Podman => {
            args.flag("--systemd=false");
            args.flag("--http-proxy=false");
            args.flag("--read-only-tmpfs=false");
            args.flag("--no-hosts");
        }
    }
    match run.users {
        Users::Engine => {}
        Users::Range { first } => {
            for option in ["--uidmap", "--gidmap"] {
                args.option(option, format!("0:{first}:65536"));
            }
        }
        Users::Caller => args.option("--userns", "keep-id:uid=1000,gid=1000"),
    }
    if let Some(runtime) = run.runtime {
        args.option("--runtime", runtime);
    }
    args.option("--mount", bind_read_only(run.meeting, MEETING_PLACE));
    args.option("--entrypoint", format!("{MEETING_PLACE}/{PROGRAM_NAME}"));
    args.flag("--");
    args.flag(run.image);
    args.flag(JOIN);
    args.0
}

/// The pid of a container's first process, and whether it runs.
pub(crate) fn pid_of(name: &str) -> Vec<OsString> {
    let format = "{{.State.Pid}} {{.State.Running}}";
    Args::new(["container", "inspect", "--format", format, "--", name]).0
}

pub(crate) fn remove<N: AsRef<str>>(names: &[N]) -> Vec<OsString> {
    let mut args = Args::new(["container", "rm", "--force", "--volumes", "--"]);
    for name in names {
        args.flag(name.as_ref());
    }
    args.0
}

/// Everything of any Boxwood, one JSON object for each: its id and labels.
pub(crate) fn list_ours() -> Vec<OsString> {
    let filter = format!("label={}", crate::labels::INSTANCE);
    let mut args = Args::new(["container", "ls", "--all", "--no-trunc"]);
    args.option("--filter", filter);
    args.option("--format", "{{.ID}}");
    args.0
}

pub(crate) fn labels_of<N: AsRef<str>>(ids: &[N]) -> Vec<OsString> {
    // Podman knows its fields by their names in Go, Docker by either.
    let format = "{{json .ID}} {{json .Config.Labels}}";
    let mut args = Args::new(["container", "inspect", "--format", format, "--"]);
    for id in ids {
        args.flag(id.as_ref());
    }
    args.0
}

/// A bind for `--mount`, whose value is a line of CSV.
fn bind_read_only(source: &Path, target: &str) -> OsString {
    let mut text = OsString::from("type=bind,");
    text.push(csv_field("source", source));
    text.push(format!(",target={target},readonly"));
    text
}

/// One field, quoted as a whole where the path would end it.
fn csv_field(key: &str, path: &Path) -> OsString {
    let plain = |path: &Path| {
        let mut field = OsString::from(format!("{key}="));
        field.push(path);
        field
    };
    match path.to_str() {
        Some(text) if text.contains([',', '"', '\n', '\r']) => {
            OsString::from(format!("\"{key}={}\"", text.replace('"', "\"\"")))
        }
        _ => plain(path),
    }
}

pub(crate) struct Args(pub(crate) Vec<OsString>);

impl Args {
    pub(crate) fn new<const N: usize>(words: [&str; N]) -> Self {
        Self(words.map(OsString::from).into())
    }

    pub(crate) fn flag(&mut self, word: impl Into<OsString>) {
        self.0.push(word.into());
    }

    pub(crate) fn option(&mut self, name: &str, value: impl Into<OsString>) {
        self.flag(name);
        self.flag(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(args: &[OsString]) -> String {
        let words: Vec<String> = args
            .iter()
            .map(|word| word.to_string_lossy().replace('\n', "\\n"))
            .collect();
        words.join("\n")
    }

    fn example<'a>(engine: Engine, labels: &'a [(String, String)]) -> Run<'a> {
        Run {
            engine,
            name: "langbot-box-demo-0badcafe",
            labels,
            image: "debian:12",
            runtime: None,
            limits: Some(Limits {
                cpus: 1.5,
                memory_mb: 512,
                pids: 64,
                tmp_mb: 64,
                workspace_quota_mb: 0,
            }),
            read_only: true,
            users: Users::Engine,
            meeting: Path::new("/run/boxwood/boxes/b1-0"),
        }
    }

    #[test]
    fn docker_run() {
        let labels = [("langbot.session_id".to_owned(), "-x\n=,:\u{fc}".to_owned())];
        insta::assert_snapshot!(lines(&run(&example(Engine::Docker, &labels))));
    }

    #[test]
    fn podman_run_as_root_and_as_a_user() {
        let mut wanted = example(Engine::Podman, &[]);
        wanted.users = Users::Range { first: 524_288 };
        insta::assert_snapshot!("podman_root", lines(&run(&wanted)));
        wanted.users = Users::Caller;
        wanted.limits = None;
        wanted.runtime = Some("crun");
        insta::assert_snapshot!("podman_user", lines(&run(&wanted)));
    }

    #[test]
    fn a_directory_with_any_name_stays_one_field() {
        let bind = |path: &str| bind_read_only(Path::new(path), "/x").into_string().unwrap();
        assert_eq!(bind("/run/a"), "type=bind,source=/run/a,target=/x,readonly");
        assert_eq!(
            bind("/run/a,readonly=false \"b\""),
            "type=bind,\"source=/run/a,readonly=false \"\"b\"\"\",target=/x,readonly"
        );
    }
}
