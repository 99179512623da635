//! Argument vectors for both engines.
//!
//! Every value is an argument of its own, or follows a constant prefix within one, so that no value can be
//! taken for an option. Paths chosen by clients appear only for boxes on another kernel; everywhere else
//! mounts are added from outside.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use boxwood_init::{BOOTSTRAP_DIR, JOIN, JOIN_STREAM, PROGRAM_NAME};
use boxwood_local::INIT_PROCESSES;
use boxwood_policy::Limits;

use crate::settings::Engine;

/// How the engine maps the users of the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Users {
    /// The engine's default.
    Engine,
    /// Ids from `first` on, for Podman as root.
    Range { first: u32 },
    /// The caller is the box's user, for rootless Podman.
    Caller,
}

/// The parameters of one container.
pub(crate) struct Run<'a> {
    pub(crate) engine: Engine,
    pub(crate) name: &'a str,
    pub(crate) labels: &'a [(String, String)],
    pub(crate) image: &'a str,
    pub(crate) runtime: Option<&'a str>,
    pub(crate) limits: Option<Limits>,
    pub(crate) read_only: bool,
    pub(crate) users: Users,
    pub(crate) inside: Inside<'a>,
}

/// How init and the mounts get into the container.
pub(crate) enum Inside<'a> {
    /// Bind-mounted. The directory contains init and its bootstrap socket.
    Bootstrap(&'a Path),
    /// Copied and mounted by the engine before the container starts.
    Engine(&'a EngineMounts),
}

/// Mounts that the engine creates, for boxes that cannot be entered from outside.
pub(crate) struct EngineMounts {
    pub(crate) areas: Vec<Area>,
    pub(crate) shared_memory_mb: u64,
    pub(crate) binds: Vec<Bind>,
}

/// A tmpfs.
pub(crate) struct Area {
    /// Absolute, without a colon.
    pub(crate) path: String,
    pub(crate) size_mb: u64,
    /// Limit of files; `None` if the kernel does not support it.
    pub(crate) files: Option<u64>,
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
}

/// A file or directory on the engine's machine.
pub(crate) struct Bind {
    pub(crate) source: PathBuf,
    pub(crate) target: String,
    pub(crate) read_only: bool,
}

/// Capabilities of init during startup. It keeps the first three; commands have none.
const CAPABILITIES: [&str; 4] = ["SETUID", "SETGID", "KILL", "SETPCAP"];

/// A container that is removed when its init exits. It runs in the background, or is created and started
/// later.
pub(crate) fn run(run: &Run<'_>) -> Vec<OsString> {
    let mut args = match run.inside {
        Inside::Bootstrap(_) => Args::new(["run", "--detach", "--rm"]),
        Inside::Engine(_) => Args::new(["create", "--interactive", "--rm"]),
    };
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
    // Our init is the first process, even if the engine is configured to run its own, and nothing of the
    // image runs besides it.
    args.flag("--init=false");
    args.flag("--no-healthcheck");
    args.option("--user", "0:0");
    args.option("--workdir", "/");
    args.option("--cap-drop", "ALL");
    for capability in CAPABILITIES {
        args.option("--cap-add", capability);
    }
    args.option("--security-opt", "no-new-privileges");
    // Init installs the same filter as in other boxes before the first command. A filter of the engine
    // below it would hide which call was refused, and would refuse `clone3`, which starts commands in their
    // cgroup.
    args.option("--security-opt", "seccomp=unconfined");
    if let Some(limits) = &run.limits {
        let memory = format!("{}m", limits.memory_mb);
        args.option("--memory", &*memory);
        args.option("--memory-swap", &*memory);
        args.option("--cpus", format!("{:.3}", limits.cpus));
        let pids = limits.pids.saturating_add(INIT_PROCESSES);
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
            // Overrides Podman's configuration.
            args.flag("--env-host=false");
            args.flag("--image-volume=ignore");
            args.option("--pid", "private");
            args.option("--uts", "private");
            // Podman would create its own `/etc/passwd`, which is not readable inside.
            args.flag("--passwd=false");
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
    let init_command = match run.inside {
        Inside::Bootstrap(directory) => {
            args.option("--mount", bind(directory, BOOTSTRAP_DIR, true));
            JOIN
        }
        Inside::Engine(engine_mounts) => {
            add_mounts(&mut args, run.engine, engine_mounts);
            JOIN_STREAM
        }
    };
    args.option("--entrypoint", format!("{BOOTSTRAP_DIR}/{PROGRAM_NAME}"));
    args.flag("--");
    args.flag(run.image);
    args.flag(init_command);
    args.0
}

fn add_mounts(args: &mut Args, engine: Engine, engine_mounts: &EngineMounts) {
    // Files can be copied into a read-only container only by means of a volume.
    args.option("--mount", format!("type=volume,target={BOOTSTRAP_DIR}"));
    args.option("--shm-size", format!("{}m", engine_mounts.shared_memory_mb));
    args.option("--add-host", "box:127.0.0.1");
    for area in &engine_mounts.areas {
        let (uid, gid) = area.owner;
        let mut extra_options = match area.files {
            Some(files) => format!(",nr_inodes={files}"),
            None => String::new(),
        };
        if engine == Engine::Podman {
            // Podman would copy the image's content of this path.
            extra_options.push_str(",notmpcopyup");
        }
        args.option(
            "--tmpfs",
            format!(
                "{}:rw,exec,nosuid,nodev,size={}m,mode={:o},uid={uid},gid={gid}{extra_options}",
                area.path, area.size_mb, area.mode
            ),
        );
    }
    for mount in &engine_mounts.binds {
        let text = bind(&mount.source, &mount.target, mount.read_only);
        args.option("--mount", text);
    }
}

/// Copies an archive from stdin into a container that has not started.
pub(crate) fn copy_in(name: &str) -> Vec<OsString> {
    Args::new(["cp", "-", &format!("{name}:{BOOTSTRAP_DIR}")]).0
}

/// Starts an existing container with the caller's stdin and stdout attached to its first process.
pub(crate) fn start_attached(name: &str) -> Vec<OsString> {
    Args::new([
        "container",
        "start",
        "--attach",
        "--interactive",
        "--",
        name,
    ])
    .0
}

/// The endpoint that Docker's client uses.
pub(crate) fn endpoint() -> Vec<OsString> {
    let format = "{{.Endpoints.docker.Host}}";
    Args::new(["context", "inspect", "--format", format]).0
}

/// The kernel version of the engine's machine.
pub(crate) fn kernel(engine: Engine) -> Vec<OsString> {
    let format = match engine {
        Engine::Docker => "{{.KernelVersion}}",
        Engine::Podman => "{{.Host.Kernel}}",
    };
    Args::new(["info", "--format", format]).0
}

/// The pid of a container's first process, and whether it is running.
pub(crate) fn pid_of(name: &str) -> Vec<OsString> {
    let format = "{{.State.Pid}} {{.State.Running}}";
    Args::new(["container", "inspect", "--format", format, "--", name]).0
}

/// The limits of a container: memory in bytes, CPUs in billionths, processes. The engine reports 0 for a
/// limit that it cannot enforce.
pub(crate) fn limits_of(name: &str) -> Vec<OsString> {
    let format = "{{.HostConfig.Memory}} {{.HostConfig.NanoCpus}} {{.HostConfig.PidsLimit}}";
    Args::new(["container", "inspect", "--format", format, "--", name]).0
}

pub(crate) fn remove<N: AsRef<str>>(names: &[N]) -> Vec<OsString> {
    let mut args = Args::new(["container", "rm", "--force", "--volumes", "--"]);
    for name in names {
        args.flag(name.as_ref());
    }
    args.0
}

/// The ids of all containers of any Boxwood daemon.
pub(crate) fn list_boxes() -> Vec<OsString> {
    let filter = format!("label={}", crate::ownership::INSTANCE);
    let mut args = Args::new(["container", "ls", "--all", "--no-trunc"]);
    args.option("--filter", filter);
    args.option("--format", "{{.ID}}");
    args.0
}

/// The volumes that an image declares, as JSON.
pub(crate) fn volumes_of(image: &str) -> Vec<OsString> {
    let format = "{{json .Config.Volumes}}";
    Args::new(["image", "inspect", "--format", format, "--", image]).0
}

pub(crate) fn labels_of<N: AsRef<str>>(ids: &[N]) -> Vec<OsString> {
    // Podman only accepts Go field names; Docker accepts both.
    let format = "{{json .ID}} {{json .Name}} {{json .State.Running}} {{json .Config.Labels}}";
    let mut args = Args::new(["container", "inspect", "--format", format, "--"]);
    for id in ids {
        args.flag(id.as_ref());
    }
    args.0
}

/// A bind for `--mount`, in CSV format.
fn bind(source: &Path, target: &str, read_only: bool) -> OsString {
    let mut text = OsString::from("type=bind,");
    text.push(csv_field("source", source));
    text.push(",");
    text.push(csv_field("target", Path::new(target)));
    if read_only {
        text.push(",readonly");
    }
    text
}

/// One CSV field, quoted if the path contains special characters.
fn csv_field(key: &str, path: &Path) -> OsString {
    match path.to_str() {
        Some(text) if text.contains([',', '"', '\n', '\r']) => {
            OsString::from(format!("\"{key}={}\"", text.replace('"', "\"\"")))
        }
        _ => {
            let mut field = OsString::from(format!("{key}="));
            field.push(path);
            field
        }
    }
}

pub(crate) struct Args(pub(crate) Vec<OsString>);

impl Args {
    pub(crate) fn new<const N: usize>(arguments: [&str; N]) -> Self {
        Self(arguments.map(OsString::from).into())
    }

    pub(crate) fn flag(&mut self, argument: impl Into<OsString>) {
        self.0.push(argument.into());
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
        let arguments: Vec<String> = args
            .iter()
            .map(|argument| argument.to_string_lossy().replace('\n', "\\n"))
            .collect();
        arguments.join("\n")
    }

    fn example(engine: Engine, labels: &[(String, String)]) -> Run<'_> {
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
            inside: Inside::Bootstrap(Path::new("/run/boxwood/boxes/b1-0")),
        }
    }

    #[test]
    fn docker_run() {
        let labels = [("langbot.session_id".to_owned(), "-x\n=,:\u{fc}".to_owned())];
        insta::assert_snapshot!(lines(&run(&example(Engine::Docker, &labels))));
    }

    #[test]
    fn podman_run_as_root_and_as_a_user() {
        let mut options = example(Engine::Podman, &[]);
        options.users = Users::Range { first: 524_288 };
        insta::assert_snapshot!("podman_root", lines(&run(&options)));
        options.users = Users::Caller;
        options.limits = None;
        options.runtime = Some("crun");
        insta::assert_snapshot!("podman_user", lines(&run(&options)));
    }

    #[test]
    fn docker_create_for_another_kernel() {
        let engine_mounts = EngineMounts {
            areas: vec![Area {
                path: "/workspace".to_owned(),
                size_mb: 96,
                files: None,
                mode: 0o755,
                owner: (1000, 1000),
            }],
            shared_memory_mb: 64,
            binds: vec![Bind {
                source: PathBuf::from("/srv/a,b"),
                target: "/data/c,d".to_owned(),
                read_only: false,
            }],
        };
        let mut options = example(Engine::Docker, &[]);
        options.runtime = Some("runsc");
        options.inside = Inside::Engine(&engine_mounts);
        insta::assert_snapshot!(lines(&run(&options)));
    }

    #[test]
    fn a_directory_with_any_name_stays_one_field() {
        let bind = |path: &str| {
            let text = bind(Path::new(path), "/x", true).into_string();
            text.expect("UTF-8")
        };
        assert_eq!(bind("/run/a"), "type=bind,source=/run/a,target=/x,readonly");
        assert_eq!(
            bind("/run/a,readonly=false \"b\""),
            "type=bind,\"source=/run/a,readonly=false \"\"b\"\"\",target=/x,readonly"
        );
    }

    proptest::proptest! {
        /// Each value is one whole argument or follows a constant prefix, and all other arguments are
        /// unchanged.
        #[test]
        fn values_from_clients_do_not_become_other_arguments(session in any_text(), image in any_text()) {
            let plain_labels = [("langbot.session_id".to_owned(), "plain".to_owned())];
            let plain = run(&example(Engine::Docker, &plain_labels));
            let labels = [("langbot.session_id".to_owned(), session.clone())];
            let options = Run { image: &image, ..example(Engine::Docker, &labels) };
            let hostile = run(&options);
            assert_eq!(plain.len(), hostile.len());
            let end = hostile.iter().position(|argument| argument == "--").expect("an end of options");
            for (index, (one, other)) in plain.iter().zip(&hostile).enumerate() {
                match one.to_str() {
                    Some("debian:12") => {
                        assert_eq!(other, image.as_str());
                        assert_eq!(index, end + 1, "the image follows all options");
                    }
                    Some("langbot.session_id=plain") => {
                        assert_eq!(other, format!("langbot.session_id={session}").as_str());
                        assert_eq!(hostile[index - 1], "--label");
                    }
                    _ => assert_eq!(one, other),
                }
            }
        }
    }

    fn any_text() -> impl proptest::strategy::Strategy<Value = String> {
        proptest::prop_oneof![
            "--?[a-z]{1,9}(=.{0,9})?",
            "(?s).{0,300}",
            "[-=,: \\n\"']{1,20}"
        ]
    }
}
