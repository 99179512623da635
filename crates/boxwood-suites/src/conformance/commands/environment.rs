//! The environment of a command: variables, names, tools, devices, descriptors.

use std::collections::BTreeMap;

use anyhow::ensure;

use crate::harness::case::cases;
use crate::harness::test_box::{request, shell};
use crate::{BoxSpec, Feature, Fixture, RootFrom};
use boxwood_backend::Stdio;

cases! { "environment":
    the_environment_is_the_documented_one,
    a_request_adds_to_the_environment_and_wins,
    commands_run_as_box,
    the_host_name_is_the_boxs_own,
    signals_are_neither_blocked_nor_ignored needs HostKernel,
    usual_tools_are_there,
    python_is_python3_and_pip_runs,
    certificates_are_there,
    the_usual_devices_work,
    descriptors_are_only_the_three,
    there_is_no_controlling_terminal,
}

/// Always there, with these values.
const FIXED: [(&str, &str); 4] = [
    ("HOME", "/home/box"),
    ("USER", "box"),
    ("LANG", "C.UTF-8"),
    ("PYTHONUNBUFFERED", "1"),
];

/// May be set in addition to the fixed ones. Any other variable is a leak of the daemon's environment.
const ALLOWED: [&str; 21] = [
    "PATH",
    "LOGNAME",
    "SHELL",
    "HOSTNAME",
    "TMPDIR",
    "TERM",
    "TZ",
    "LC_ALL",
    "XDG_CACHE_HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "UV_NATIVE_TLS",
    "UV_SYSTEM_CERTS",
    "NPM_CONFIG_CAFILE",
    "npm_config_cafile",
    "PIP_DISABLE_PIP_VERSION_CHECK",
];

fn parse(environment: &[u8]) -> BTreeMap<String, String> {
    String::from_utf8_lossy(environment)
        .split('\0')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

async fn the_environment_is_the_documented_one(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let ran = test_box.run(request(&["/usr/bin/env", "-0"])).await?;
    ran.text()?;
    let found = parse(&ran.stdout);
    for (name, value) in FIXED {
        ensure!(
            found.get(name).is_some_and(|found| found == value),
            "{name} is {:?}, not {value:?}",
            found.get(name)
        );
    }
    let path = found.get("PATH").map(String::as_str).unwrap_or_default();
    for directory in ["/usr/local/bin", "/usr/bin", "/bin"] {
        ensure!(
            path.split(':').any(|entry| entry == directory),
            "{directory} is not in PATH {path:?}"
        );
    }
    ensure!(
        path.split(':').all(|entry| entry.starts_with('/')),
        "PATH has a relative entry: {path:?}"
    );
    for name in found.keys() {
        let documented =
            FIXED.iter().any(|(fixed, _)| fixed == name) || ALLOWED.contains(&name.as_str());
        ensure!(documented, "`{name}` is not documented: {found:?}");
    }
    Ok(())
}

async fn a_request_adds_to_the_environment_and_wins(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mut spawn_request = request(&["/usr/bin/env", "-0"]);
    spawn_request.env = [("LANG", "de_DE.UTF-8"), ("SECRET", "a=b\nc"), ("EMPTY", "")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let ran = test_box.run(spawn_request).await?;
    let found = parse(&ran.stdout);
    ensure!(found.get("LANG").is_some_and(|lang| lang == "de_DE.UTF-8"));
    ensure!(found.get("SECRET").is_some_and(|secret| secret == "a=b\nc"));
    ensure!(found.get("EMPTY").is_some_and(String::is_empty));
    ensure!(found.get("HOME").is_some_and(|home| home == "/home/box"));
    let next = test_box.run(request(&["/usr/bin/env", "-0"])).await?;
    ensure!(
        !parse(&next.stdout).contains_key("SECRET"),
        "one request's variables reached the next"
    );
    Ok(())
}

async fn commands_run_as_box(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let text = test_box
        .stdout_of(
            "id -u; id -g; id -un; id -ru; cat /proc/self/loginuid 2>/dev/null >/dev/null; echo ~",
        )
        .await?;
    ensure!(text == "1000\n1000\nbox\n1000\n/home/box\n", "{text:?}");
    let groups = test_box.stdout_of("id -G").await?;
    let mapped = groups
        .split_whitespace()
        .filter(|group| !is_tag(fixture, group))
        .all(|group| group == "1000" || group == "65534");
    ensure!(mapped, "groups of the daemon in the box: {groups:?}");
    Ok(())
}

/// On a kernel without cgroups and subreapers, each command is tagged with a supplementary group.
fn is_tag(fixture: &Fixture, group: &str) -> bool {
    !fixture.host().has_feature(Feature::HostKernel)
        && group.parse().is_ok_and(|group: u32| group >= 1 << 31)
}

async fn the_host_name_is_the_boxs_own(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let inside = test_box
        .stdout_of("cat /proc/sys/kernel/hostname; uname -n")
        .await?;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    ensure!(
        inside
            .lines()
            .all(|name| !name.is_empty() && name != host.trim()),
        "the box is called {inside:?}, like its host"
    );
    let resolved = test_box
        .stdout_of("python3 -c 'import socket; print(socket.gethostbyname(socket.gethostname()), socket.gethostbyname(\"localhost\"))'")
        .await?;
    ensure!(resolved.trim().ends_with("127.0.0.1"), "{resolved:?}");
    Ok(())
}

async fn signals_are_neither_blocked_nor_ignored(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let ran = test_box
        .run(request(&[
            "/bin/grep",
            "-E",
            "^Sig(Blk|Ign):",
            "/proc/self/status",
        ]))
        .await?;
    let text = ran.text()?;
    ensure!(
        text.lines().count() == 2 && text.lines().all(|line| line.ends_with("0000000000000000")),
        "{text}"
    );
    Ok(())
}

async fn usual_tools_are_there(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box.stdout_of("for tool in sh ls cat grep sed tar python3 env; do command -v $tool >/dev/null || exit 1; done")
        .await?;
    let text = test_box
        .stdout_of("python3 -c 'import ssl, json, ctypes, sqlite3; print(6 * 7)'")
        .await?;
    ensure!(text == "42\n");
    // The suite's host has node; a box made of the host's system must run it.
    if fixture.host().root == RootFrom::TheHost && std::path::Path::new("/usr/bin/node").exists() {
        let text = test_box.stdout_of("node -e 'console.log(6 * 7)'").await?;
        ensure!(text == "42\n");
    }
    Ok(())
}

async fn python_is_python3_and_pip_runs(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let text = test_box.stdout_of("python3 -m pip --version").await?;
    ensure!(text.starts_with("pip "), "{text:?}");
    // The suite does not control the contents of an image.
    if fixture.host().root == RootFrom::AnImage {
        return Ok(());
    }
    let text = test_box
        .stdout_of("python -c 'import sys; print(sys.version_info[0])'")
        .await?;
    ensure!(text == "3\n");
    // The distribution's marker would refuse every `pip install`.
    let text = test_box
        .stdout_of("find /usr/lib/python3* -name EXTERNALLY-MANAGED -size +0 2>/dev/null | wc -l")
        .await?;
    ensure!(
        text.trim() == "0",
        "the EXTERNALLY-MANAGED marker is visible"
    );
    Ok(())
}

async fn certificates_are_there(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let text = test_box
        .stdout_of(
            "python3 -c 'import ssl; print(len(ssl.create_default_context().get_ca_certs()))'",
        )
        .await?;
    let count: usize = text.trim().parse()?;
    ensure!(count > 10, "{count} certificates");
    test_box.stdout_of("for name in SSL_CERT_FILE PIP_CERT REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS; do eval file=\\${$name-}; [ -z \"$file\" ] || [ -r \"$file\" ] || { echo $name $file; exit 1; }; done")
        .await?;
    Ok(())
}

async fn the_usual_devices_work(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box
        .stdout_of(
            "set -e
        echo x > /dev/null
        [ $(head -c 10 /dev/zero | wc -c) = 10 ]
        [ $(head -c 10 /dev/urandom | wc -c) = 10 ]
        [ $(head -c 10 /dev/random | wc -c) = 10 ]
        ! echo x > /dev/full 2>/dev/null
        [ -d /dev/shm ] && echo x > /dev/shm/x
        [ -e /dev/ptmx ] && [ -d /dev/pts ]
        [ -L /dev/fd ] && [ -L /dev/stdin ] && [ -L /dev/stdout ] && [ -L /dev/stderr ]
        echo out > /dev/stdout",
        )
        .await?;
    Ok(())
}

async fn descriptors_are_only_the_three(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    for stdio in [Stdio::Output, Stdio::Pipes] {
        let list = "import os; print(*sorted(os.listdir('/proc/self/fd')), sep='\\n')";
        let mut spawn_request = request(&["python3", "-I", "-c", list]);
        spawn_request.stdio = stdio;
        let mut running = test_box.spawn(spawn_request).await?;
        drop(running.stdin.take());
        let ran = running.finish().await?;
        // The fourth is the directory that is read.
        ensure!(ran.text()? == "0\n1\n2\n3\n", "{:?}", ran.out());
    }
    Ok(())
}

async fn there_is_no_controlling_terminal(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let ran = test_box.run(shell("exec 3<>/dev/tty")).await?;
    ensure!(
        ran.code() != Some(0),
        "a command opened a controlling terminal"
    );
    let text = test_box
        .stdout_of("ps -o tty= -p $$ 2>/dev/null || echo '?'")
        .await?;
    ensure!(text.trim() == "?", "{text:?}");
    Ok(())
}
