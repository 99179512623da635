//! Every argument vector of either engine, in one place.
//!
//! Comes in: values, checked or not. Goes out: vectors in which each value is an argument of its own
//! or the rest of one behind a word of ours, so that none can be taken for an option. Never here: a
//! path that a client chose, unless the box is behind another kernel; everywhere else mounts are put
//! into it from outside.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use boxwood_init::{JOIN, JOIN_STREAM, MEETING_PLACE, PROGRAM_NAME};
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
    pub(crate) inside: Inside<'a>,
}

/// How init and everything around it get into the container.
pub(crate) enum Inside<'a> {
    /// From outside. The directory has init and its socket.
    Meeting(&'a Path),
    /// By the engine, before the container starts.
    Furnished(&'a Furniture),
}

/// What an engine puts into a container where nobody else can.
pub(crate) struct Furniture {
    pub(crate) areas: Vec<Area>,
    pub(crate) shared_memory_mb: u64,
    pub(crate) binds: Vec<Bind>,
}

/// A private place in memory.
pub(crate) struct Area {
    /// Absolute, without a colon.
    pub(crate) path: String,
    pub(crate) size_mb: u64,
    /// How many files it may have; none where the kernel does not count.
    pub(crate) files: Option<u64>,
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
}

/// A file or directory of the engine's machine.
pub(crate) struct Bind {
    pub(crate) source: PathBuf,
    pub(crate) target: String,
    pub(crate) read_only: bool,
}

/// What init has while it gets ready; it keeps the first three, and commands have none.
const CAPABILITIES: [&str; 4] = ["SETUID", "SETGID", "KILL", "SETPCAP"];

/// A new container that goes when its init ends. It runs in the background, or is to be furnished and
/// started.
pub(crate) fn run(run: &Run<'_>) -> Vec<OsString> {
    let mut args = match run.inside {
        Inside::Meeting(_) => Args::new(["run", "--detach", "--rm"]),
        Inside::Furnished(_) => Args::new(["create", "--interactive", "--rm"]),
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
            // Whatever its own configuration says.
            args.flag("--env-host=false");
            args.flag("--image-volume=ignore");
            args.option("--pid", "private");
            args.option("--uts", "private");
            // It would make a table of its own, readable to nobody inside.
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
    let word = match run.inside {
        Inside::Meeting(directory) => {
            args.option("--mount", bind(directory, MEETING_PLACE, true));
            JOIN
        }
        Inside::Furnished(furniture) => {
            furnish(&mut args, run.engine, furniture);
            JOIN_STREAM
        }
    };
    args.option("--entrypoint", format!("{MEETING_PLACE}/{PROGRAM_NAME}"));
    args.flag("--");
    args.flag(run.image);
    args.flag(word);
    args.0
}

fn furnish(args: &mut Args, engine: Engine, furniture: &Furniture) {
    // Nothing can be copied into a read-only container but into a volume of its own.
    args.option("--mount", format!("type=volume,target={MEETING_PLACE}"));
    args.option("--shm-size", format!("{}m", furniture.shared_memory_mb));
    args.option("--add-host", "box:127.0.0.1");
    for area in &furniture.areas {
        let (uid, gid) = area.owner;
        let mut more = match area.files {
            Some(files) => format!(",nr_inodes={files}"),
            None => String::new(),
        };
        if engine == Engine::Podman {
            // It would copy what the image has at that place.
            more.push_str(",notmpcopyup");
        }
        args.option(
            "--tmpfs",
            format!(
                "{}:rw,exec,nosuid,nodev,size={}m,mode={:o},uid={uid},gid={gid}{more}",
                area.path, area.size_mb, area.mode
            ),
        );
    }
    for mount in &furniture.binds {
        let text = bind(&mount.source, &mount.target, mount.read_only);
        args.option("--mount", text);
    }
}

/// An archive from standard input, into a container that has not started.
pub(crate) fn copy_in(name: &str) -> Vec<OsString> {
    Args::new(["cp", "-", &format!("{name}:{MEETING_PLACE}")]).0
}

/// Starts a container that is there; its first process has the caller's streams.
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

/// Where Docker's client would look for its daemon.
pub(crate) fn endpoint() -> Vec<OsString> {
    let format = "{{.Endpoints.docker.Host}}";
    Args::new(["context", "inspect", "--format", format]).0
}

/// The kernel under the engine's containers.
pub(crate) fn kernel(engine: Engine) -> Vec<OsString> {
    let format = match engine {
        Engine::Docker => "{{.KernelVersion}}",
        Engine::Podman => "{{.Host.Kernel}}",
    };
    Args::new(["info", "--format", format]).0
}

/// The pid of a container's first process, and whether it runs.
pub(crate) fn pid_of(name: &str) -> Vec<OsString> {
    let format = "{{.State.Pid}} {{.State.Running}}";
    Args::new(["container", "inspect", "--format", format, "--", name]).0
}

/// The limits that a container has: memory in bytes, processors in thousand millionths, processes. What
/// the engine cannot enforce it sets back to nothing.
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

/// Everything of any Boxwood: the ids.
pub(crate) fn list_ours() -> Vec<OsString> {
    let filter = format!("label={}", crate::labels::INSTANCE);
    let mut args = Args::new(["container", "ls", "--all", "--no-trunc"]);
    args.option("--filter", filter);
    args.option("--format", "{{.ID}}");
    args.0
}

/// What places an image declares as volumes, as JSON.
pub(crate) fn volumes_of(image: &str) -> Vec<OsString> {
    let format = "{{json .Config.Volumes}}";
    Args::new(["image", "inspect", "--format", format, "--", image]).0
}

pub(crate) fn labels_of<N: AsRef<str>>(ids: &[N]) -> Vec<OsString> {
    // Podman knows its fields by their names in Go, Docker by either.
    let format = "{{json .ID}} {{json .Name}} {{json .State.Running}} {{json .Config.Labels}}";
    let mut args = Args::new(["container", "inspect", "--format", format, "--"]);
    for id in ids {
        args.flag(id.as_ref());
    }
    args.0
}

/// A bind for `--mount`, whose value is a line of CSV.
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
            inside: Inside::Meeting(Path::new("/run/boxwood/boxes/b1-0")),
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
    fn docker_create_for_another_kernel() {
        let furniture = Furniture {
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
        let mut wanted = example(Engine::Docker, &[]);
        wanted.runtime = Some("runsc");
        wanted.inside = Inside::Furnished(&furniture);
        insta::assert_snapshot!(lines(&run(&wanted)));
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
        /// Each value is the whole of one argument, or the rest of one behind a word of ours, and all
        /// others stay what they are.
        #[test]
        fn no_value_becomes_another_argument(session in any_text(), image in any_text()) {
            let plain_labels = [("langbot.session_id".to_owned(), "plain".to_owned())];
            let plain = run(&example(Engine::Docker, &plain_labels));
            let labels = [("langbot.session_id".to_owned(), session.clone())];
            let wanted = Run { image: &image, ..example(Engine::Docker, &labels) };
            let hostile = run(&wanted);
            assert_eq!(plain.len(), hostile.len());
            let end = hostile.iter().position(|word| word == "--").expect("an end of options");
            for (at, (one, other)) in plain.iter().zip(&hostile).enumerate() {
                match one.to_str() {
                    Some("debian:12") => {
                        assert_eq!(other, image.as_str());
                        assert_eq!(at, end + 1, "an image stands behind all options");
                    }
                    Some("langbot.session_id=plain") => {
                        assert_eq!(other, format!("langbot.session_id={session}").as_str());
                        assert_eq!(hostile[at - 1], "--label");
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
