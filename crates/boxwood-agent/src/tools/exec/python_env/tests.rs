//! Really runs the preamble, with this machine's shell and Python. Nothing here needs a network: no
//! project needs anything.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::*;

/// A box's home and a project, as directories.
struct Fixture {
    directory: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["home", "project", "bin"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { directory }
    }

    fn with(self, name: &str, content: &str) -> Self {
        std::fs::write(self.project().join(name), content).unwrap();
        self
    }

    fn path(&self, tail: &str) -> PathBuf {
        self.directory.path().join(tail)
    }

    fn project(&self) -> PathBuf {
        self.path("project")
    }

    fn command(&self, command: &str, wait_sec: u32) -> Command {
        let mut shell = Command::new("/bin/sh");
        shell
            .arg("-c")
            .arg(waiting(command, self.project().to_str().unwrap(), wait_sec))
            .env("HOME", self.path("home"))
            .env_remove("VIRTUAL_ENV")
            .stdin(Stdio::null());
        shell
    }

    fn run(&self, command: &str) -> Output {
        self.command(command, 60).output().unwrap()
    }

    /// With no program in reach but Python and what a small image has; `flock` is not among it.
    fn without_flock(&self, command: &str, wait_sec: u32) -> Output {
        for name in ["mkdir", "cat", "rm", "rmdir", "sleep"] {
            let found = ["/bin", "/usr/bin"].map(|directory| Path::new(directory).join(name));
            let found = found.iter().find(|path| path.exists()).unwrap();
            let _ = symlink(found, self.path("bin").join(name));
        }
        let python = self.path("bin/python3");
        std::fs::write(&python, format!("#!/bin/sh\nexec {} \"$@\"\n", python3())).unwrap();
        std::fs::set_permissions(&python, PermissionsExt::from_mode(0o755)).unwrap();
        self.command(command, wait_sec)
            .env("PATH", self.path("bin"))
            .output()
            .unwrap()
    }

    /// The environments there are.
    fn built(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.path("home/.boxwood/python")) else {
            return Vec::new();
        };
        entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.join("boxwood-python-env.json").exists())
            .collect()
    }
}

/// The interpreter itself, whatever stands before it in the search path.
fn python3() -> String {
    let found = Command::new("python3")
        .args(["-c", "import sys, ensurepip, venv; print(sys.executable)"])
        .output()
        .expect("this test needs python3 with venv and ensurepip: install python3-venv");
    assert!(found.status.success(), "install python3-venv: {found:?}");
    String::from_utf8(found.stdout).unwrap().trim().to_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const TELL: &str = "python -c 'import sys; print(sys.prefix)'; echo \"$VIRTUAL_ENV\"";

#[test]
fn the_helper_can_stand_between_single_quotes() {
    assert!(!HELPER.contains('\''));
    let wrapped = with_python_env("true", "/p");
    for mark in ["@PROJECT@", "@HELPER@", "@WAIT@"] {
        assert!(!wrapped.contains(mark), "{mark}");
    }
}

#[test]
fn the_wrapper_makes_an_environment_and_ends_with_the_command() {
    let wrapped = with_python_env("python run.py", "/workspace/.skills/pdf");
    assert!(wrapped.contains("-m venv"));
    assert!(wrapped.contains("'/workspace/.skills/pdf'"));
    assert!(wrapped.contains(" 120 "));
    assert!(wrapped.ends_with("\npython run.py"));
}

#[test]
fn an_environment_is_built_once_and_kept_by_the_hash_of_its_manifests() {
    let fixture = Fixture::new().with("requirements.txt", "# nothing yet\n");
    let first = fixture.run(TELL);
    assert!(first.status.success(), "{}", stderr(&first));
    let built = fixture.built();
    let [environment] = built.as_slice() else {
        panic!("{built:?}");
    };
    // printf 'requirements.txt\0# nothing yet\n\0' | sha256sum
    assert_eq!(
        environment.file_name().unwrap(),
        "d3d3d664ff5ef0cfd2d3628c90a98e690c8954c413d75204fa3da3d4c5fd833a"
    );
    let expected = format!("{0}\n{0}\n", environment.display());
    assert_eq!(stdout(&first), expected);
    assert!(stderr(&first).contains("building the Python environment"));
    let note = std::fs::read_to_string(environment.join("boxwood-python-env.json")).unwrap();
    let meta: serde_json::Value = serde_json::from_str(&note).unwrap();
    assert_eq!(
        meta["manifest_files"],
        serde_json::json!(["requirements.txt"])
    );
    assert_eq!(meta["python_version"].as_array().unwrap().len(), 3);
    let sorted = [
        "manifest_files",
        "manifest_sha256",
        "python_executable",
        "python_version",
    ];
    let positions: Vec<_> = sorted.iter().map(|key| note.find(key).unwrap()).collect();
    assert!(positions.is_sorted());

    // The second time nothing is built, and nothing is said.
    std::fs::write(environment.join("mark"), "").unwrap();
    let second = fixture.run(TELL);
    assert_eq!(
        (stdout(&second), stderr(&second)),
        (expected, String::new())
    );
    assert!(environment.join("mark").exists());

    // Made of something else: made anew.
    let other = note.replace("\"python_version\": [", "\"python_version\": [9");
    assert_ne!(other, note);
    std::fs::write(environment.join("boxwood-python-env.json"), other).unwrap();
    let third = fixture.run(TELL);
    assert!(third.status.success(), "{}", stderr(&third));
    assert!(!environment.join("mark").exists());

    // The project is as it was: it may be read-only.
    let names: Vec<_> = std::fs::read_dir(fixture.project()).unwrap().collect();
    assert_eq!(names.len(), 1);
}

#[test]
fn the_command_keeps_its_exit_code_its_input_and_its_shell() {
    let fixture = Fixture::new().with("requirements.txt", "");
    let ended = fixture.run("false\necho \"$0 ${boxwood_env-unset}\"\nexit 7");
    assert_eq!(ended.status.code(), Some(7));
    assert_eq!(stdout(&ended), "/bin/sh unset\n");
    let mut child = fixture
        .command("cat; set -- a b; echo $#", 60)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"given\n").unwrap();
    assert_eq!(stdout(&child.wait_with_output().unwrap()), "given\n2\n");
}

#[test]
fn commands_that_start_together_build_it_once() {
    let fixture = Fixture::new()
        .with("setup.cfg.txt", "")
        .with("requirements.txt", "#\n");
    let started: Vec<_> = (0..4)
        .map(|_| {
            fixture
                .command("echo ran", 60)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut builders = 0;
    for child in started {
        let ended = child.wait_with_output().unwrap();
        assert_eq!(stdout(&ended), "ran\n", "{}", stderr(&ended));
        builders += usize::from(stderr(&ended).contains("building the Python environment"));
    }
    assert_eq!(builders, 1);
    assert_eq!(fixture.built().len(), 1);
}

/// printf 'requirements.txt\0\0' | sha256sum
const OF_AN_EMPTY_MANIFEST: &str =
    "f69fa33d632d9ce3336653ef0f9a3dce24ee70d98b49e03fcccddca0cccce912";

#[test]
fn without_flock_a_directory_is_the_lock_and_a_dead_holder_does_not_keep_it() {
    let fixture = Fixture::new().with("requirements.txt", "");
    let root = fixture.path("home/.boxwood/python");
    let lock = root.join(format!("{OF_AN_EMPTY_MANIFEST}.lock.d"));
    std::fs::create_dir_all(&lock).unwrap();

    // While its holder lives it is waited for, and the wait has an end.
    std::fs::write(lock.join("pid"), std::process::id().to_string()).unwrap();
    let ended = fixture.without_flock("echo ran", 1);
    assert_eq!(
        (ended.status.code(), stdout(&ended).as_str()),
        (Some(1), "")
    );
    let stderr_text = stderr(&ended);
    assert!(
        stderr_text.contains("for 1 s; try again later, or remove"),
        "{stderr_text}"
    );
    assert!(lock.exists());

    let mut dead = Command::new("/bin/sh").args(["-c", ":"]).spawn().unwrap();
    dead.wait().unwrap();
    std::fs::write(lock.join("pid"), dead.id().to_string()).unwrap();
    let ended = fixture.without_flock("echo ran", 1);
    assert_eq!(stdout(&ended), "ran\n", "{}", stderr(&ended));
    assert_eq!(fixture.built(), [root.join(OF_AN_EMPTY_MANIFEST)]);
    assert!(!lock.exists());
}

#[test]
fn with_flock_the_wait_has_an_end_too() {
    let fixture = Fixture::new().with("requirements.txt", "");
    let root = fixture.path("home/.boxwood/python");
    std::fs::create_dir_all(&root).unwrap();
    let mut holder = Command::new("flock")
        .arg(root.join(format!("{OF_AN_EMPTY_MANIFEST}.lock")))
        .args(["sh", "-c", "echo held; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test needs flock: install util-linux");
    let mut held = [0; 5];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut held).unwrap();
    let ended = fixture.command("echo ran", 1).output().unwrap();
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert_eq!(
        (ended.status.code(), stdout(&ended).as_str()),
        (Some(1), "")
    );
    let stderr_text = stderr(&ended);
    assert!(
        stderr_text.contains("for 1 s; try again later"),
        "{stderr_text}"
    );
}

#[test]
fn what_cannot_be_installed_ends_the_call_and_leaves_nothing_half_built() {
    let fixture = Fixture::new().with("requirements.txt", "./no-such-directory\n");
    let ended = fixture.run("echo ran");
    assert_eq!(
        (ended.status.code(), stdout(&ended).as_str()),
        (Some(1), "")
    );
    assert!(
        stderr(&ended).contains("failed to install the dependencies"),
        "{}",
        stderr(&ended)
    );
    assert!(fixture.built().is_empty());
}

/// Builds a wheel with nothing but Python, so that no build tool has to be fetched.
const BACKEND: &str = r#"
import os, zipfile

def build_wheel(directory, settings=None, metadata=None):
    with open("greeting.py") as file:
        source = file.read()
    open("left-by-the-build", "w").close()
    info = "greeting-1.0.dist-info/"
    name = "greeting-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        wheel.writestr("greeting.py", source)
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: us\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(info + "RECORD", "")
    return name
"#;

#[test]
fn a_package_is_installed_from_a_copy_and_again_when_its_sources_change() {
    let fixture = Fixture::new()
        .with(
            "pyproject.toml",
            "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n\
             [project]\nname = \"greeting\"\nversion = \"1.0\"\n",
        )
        .with("backend.py", BACKEND)
        .with("greeting.py", "word = \"hello\"\n");
    let greet = "cd / && python -c 'import greeting; print(greeting.word)'";
    let first = fixture.run(greet);
    assert_eq!(stdout(&first), "hello\n", "{}", stderr(&first));
    assert!(!fixture.project().join("left-by-the-build").exists());
    assert_eq!(stderr(&fixture.run(greet)), "");
    let fixture = fixture.with("greeting.py", "word = \"good evening\"\n");
    assert_eq!(stdout(&fixture.run(greet)), "good evening\n");
    assert_eq!(fixture.built().len(), 1);
}

#[test]
fn a_box_without_python_says_so() {
    let fixture = Fixture::new().with("requirements.txt", "");
    let ended = fixture
        .command("echo ran", 1)
        .env("PATH", fixture.path("bin"))
        .output()
        .unwrap();
    assert_eq!(
        (ended.status.code(), stdout(&ended).as_str()),
        (Some(1), "")
    );
    assert!(
        stderr(&ended).contains("this box has no python3"),
        "{}",
        stderr(&ended)
    );
}

#[test]
fn any_name_of_a_project_is_one_word() {
    let fixture = Fixture::new();
    let project = fixture.path("it's a $(touch pwned) @WAIT@ project");
    std::fs::create_dir(&project).unwrap();
    let wrapped = with_python_env("echo ran", project.to_str().unwrap());
    let ended = Command::new("/bin/sh")
        .args(["-c", &wrapped])
        .env("HOME", fixture.path("home"))
        .current_dir(fixture.path("home"))
        .output()
        .unwrap();
    assert_eq!(stdout(&ended), "ran\n", "{}", stderr(&ended));
    assert!(!fixture.path("home/pwned").exists());
}

#[test]
fn manifests_and_a_virtual_environment_make_a_python_project() {
    assert!(wants_python_env([".venv"]));
    assert!(wants_python_env(["a", "setup.cfg"]));
    assert!(!wants_python_env(["SKILL.md", "venv"]));
}
