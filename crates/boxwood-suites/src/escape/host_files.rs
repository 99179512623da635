//! Files of the host that are not mounted, and the limits of mounted directories.

use anyhow::ensure;
use boxwood_api::{MountMode, Network};
use boxwood_policy::BoxUser;

use crate::escape::attack::attack;
use crate::harness::case::cases;
use crate::harness::host_side::marker;
use crate::{BoxSpec, Fixture, RootFrom};

cases! { "host_files":
    cannot_read_or_write_an_unmounted_host_file needs HostMounts,
    cannot_read_or_write_an_unmounted_host_file_as_root_inside,
    cannot_read_or_write_an_unmounted_host_file_with_the_network_on,
    cannot_leave_a_mounted_directory needs HostMounts,
    cannot_write_through_a_read_only_mount needs HostMounts,
    cannot_find_a_socket_of_the_host,
    cannot_learn_who_uses_the_host,
    cannot_change_the_image_of_another_box,
}

/// Hashes of host files that an image has its own versions of, as far as the suite can read them.
async fn hashes_of_host_files() -> anyhow::Result<Vec<String>> {
    let output = tokio::process::Command::new("sha256sum")
        .args(["/etc/shadow", "/etc/gshadow", "/var/lib/dpkg/status-old"])
        .output()
        .await?;
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(|hash| format!("sha256:{hash}"))
        .collect())
}

async fn attack_unmounted_files(fixture: &Fixture, spec: &BoxSpec) -> anyhow::Result<()> {
    let secret_text = marker("secret-words");
    let secret = fixture.host_file("unmounted/secret", &secret_text)?;
    let target = fixture.host_file("unmounted/target", "untouched")?;
    let workspace = fixture.host_dir("workspace")?;
    let test_box = fixture
        .start(&spec.clone().workspace(&workspace, MountMode::Rw))
        .await?;
    let (secret, path) = (secret.display().to_string(), target.display().to_string());
    let mut args = vec![secret, secret_text, path];
    if fixture.host().root == RootFrom::AnImage {
        args.push("image".to_owned());
        args.extend(hashes_of_host_files().await?);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    attack!("unmounted_files", 25)
        .assert_refused(&test_box, &args)
        .await?;
    ensure!(std::fs::read_to_string(&target)? == "untouched");
    ensure!(!fixture.scratch().join("unmounted/target.new").exists());
    ensure!(std::fs::read_dir(fixture.scratch().join("unmounted"))?.count() == 2);
    Ok(())
}

async fn cannot_read_or_write_an_unmounted_host_file(fixture: &Fixture) -> anyhow::Result<()> {
    attack_unmounted_files(fixture, &BoxSpec::new()).await
}

async fn cannot_read_or_write_an_unmounted_host_file_as_root_inside(
    fixture: &Fixture,
) -> anyhow::Result<()> {
    if !fixture.host().root_inside {
        return fixture.assert_no_root_inside().await;
    }
    attack_unmounted_files(fixture, &BoxSpec::new().user(BoxUser::Root)).await
}

async fn cannot_read_or_write_an_unmounted_host_file_with_the_network_on(
    fixture: &Fixture,
) -> anyhow::Result<()> {
    if !fixture.host().network {
        return super::network::refused(fixture).await;
    }
    attack_unmounted_files(fixture, &BoxSpec::new().network(Network::On)).await
}

async fn cannot_leave_a_mounted_directory(fixture: &Fixture) -> anyhow::Result<()> {
    let secret_text = marker("sibling-words");
    fixture.host_file("house/sibling/secret", &secret_text)?;
    let room = fixture.host_dir("house/room")?;
    std::fs::create_dir_all(room.join("a/b/c"))?;
    let test_box = fixture
        .start(&BoxSpec::new().workspace(&room, MountMode::Rw))
        .await?;
    // The host moves the working directory of a process out of the mount. `..` of the moved directory is its new
    // parent, which the process must not reach.
    let running = test_box
        .spawn(crate::harness::test_box::shell(
            "cd a/b/c; touch /workspace/inside; for i in $(seq 80); do [ -e /workspace/moved ] && break; sleep 0.1; done; cd -P ../../.. 2>/dev/null; cat sibling/secret ../sibling/secret ../../sibling/secret ../../../house/sibling/secret 2>/dev/null; ls; pwd -P",
        ))
        .await?;
    for _ in 0..80 {
        if room.join("inside").exists() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    std::fs::rename(room.join("a/b/c"), fixture.scratch().join("house/c"))?;
    std::fs::write(room.join("moved"), "")?;
    let ran = running.finish().await?;
    ensure!(
        !ran.out().contains(&secret_text),
        "a moved directory led outside: {}",
        ran.out()
    );
    for path in [
        "../sibling/secret",
        "a/../../sibling/secret",
        "/workspace/../sibling/secret",
    ] {
        let ran = test_box.sh(&format!("cat {path}")).await?;
        ensure!(
            ran.code() != Some(0) && !ran.out().contains(&secret_text),
            "{path}"
        );
    }
    Ok(())
}

async fn cannot_write_through_a_read_only_mount(fixture: &Fixture) -> anyhow::Result<()> {
    let directory = fixture.host_dir("kept")?;
    let file = fixture.host_file("kept/file", "untouched")?;
    let test_box = fixture
        .start(&BoxSpec::new().workspace(&directory, MountMode::Ro))
        .await?;
    let script = "
import os, errno
def ways():
    yield lambda: os.open('/workspace/file', os.O_WRONLY)
    yield lambda: os.open('/workspace/file', os.O_RDWR)
    yield lambda: os.open('/workspace/file', os.O_RDONLY | os.O_TRUNC)
    yield lambda: os.open('/proc/self/fd/%d' % os.open('/workspace/file', os.O_RDONLY), os.O_RDWR)
    yield lambda: os.open('/proc/self/root/workspace/file', os.O_RDWR)
    yield lambda: os.truncate('/workspace/file', 0)
    yield lambda: os.unlink('/workspace/file')
    yield lambda: os.rename('/workspace/file', '/workspace/other')
    yield lambda: os.link('/workspace/file', '/tmp/file')
    yield lambda: os.chmod('/workspace/file', 0o777)
    yield lambda: os.utime('/workspace/file', (1, 1))
    yield lambda: os.setxattr('/workspace/file', 'user.x', b'x')
    yield lambda: os.mkdir('/workspace/dir')
    yield lambda: os.symlink('a', '/workspace/link')
    yield lambda: os.mkfifo('/workspace/fifo')
refused = 0
for way in ways():
    try:
        way()
        print('worked', refused)
    except OSError:
        refused += 1
print('refused', refused)";
    let ran = test_box
        .run(crate::harness::test_box::request(&[
            "python3", "-c", script,
        ]))
        .await?;
    ensure!(ran.text()? == "refused 15\n", "{:?}", ran.out());
    ensure!(std::fs::read_to_string(file)? == "untouched");
    ensure!(std::fs::read_dir(directory)?.count() == 1);
    Ok(())
}

async fn cannot_find_a_socket_of_the_host(fixture: &Fixture) -> anyhow::Result<()> {
    let path = fixture.scratch().join("service.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path)?;
    listener.set_nonblocking(true)?;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    attack!("sockets_of_the_host", 20)
        .assert_refused(&test_box, &[&path.display().to_string()])
        .await?;
    ensure!(
        listener.accept().is_err(),
        "the box connected to a socket of the host"
    );
    Ok(())
}

async fn cannot_learn_who_uses_the_host(fixture: &Fixture) -> anyhow::Result<()> {
    let accounts = std::fs::read_to_string("/etc/passwd")?;
    let users: Vec<&str> = accounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let uid: u32 = fields.nth(1)?.parse().ok()?;
            ((1000..60_000).contains(&uid) && name != "box").then_some(name)
        })
        .collect();
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let args: Vec<&str> = [machine.trim()].into_iter().chain(users).collect();
    attack!("secrets", 8)
        .assert_refused(&test_box, &args)
        .await?;
    Ok(())
}

async fn cannot_change_the_image_of_another_box(fixture: &Fixture) -> anyhow::Result<()> {
    let one = fixture.start(&BoxSpec::new()).await?;
    one.assert_isolated().await?;
    one.sh("cp /bin/true /usr/local/bin/ls; echo broken > /opt/python3; echo 'echo broken' > /etc/profile; echo broken > /etc/passwd; rm -rf /usr/local/* /opt/* 2>/dev/null; cp /bin/false /usr/local/bin/python3")
        .await?;
    let two = fixture.start(&BoxSpec::new()).await?;
    ensure!(two.stdout_of("python3 -c 'print(1)'; id -un").await? == "1\nbox\n");
    Ok(())
}
