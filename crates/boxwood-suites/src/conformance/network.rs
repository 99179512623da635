//! `network: on` reaches other hosts, `network: off` only the box itself.

use anyhow::{Context as _, ensure};
use boxwood_api::Network;

use crate::harness::case::cases;
use crate::harness::test_box::request;
use crate::{BoxSpec, Fixture};
use boxwood_backend::StartError;

cases! { "network":
    off_is_a_loopback_and_nothing_else,
    on_has_an_interface_and_a_route,
    on_reaches_the_name_server,
    on_resolves_names_by_the_usual_call,
    on_is_refused_where_it_cannot_be_had,
}

async fn off_is_a_loopback_and_nothing_else(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let text = test_box
        .stdout_of("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; tail -n +2 /proc/net/route | wc -l; python3 -c \"import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()); print('loop')\"")
        .await?;
    ensure!(text == "lo\n0\nloop\n", "{text:?}");
    Ok(())
}

async fn on_has_an_interface_and_a_route(fixture: &Fixture) -> anyhow::Result<()> {
    if !fixture.host().network {
        return Ok(());
    }
    let test_box = fixture.start(&BoxSpec::new().network(Network::On)).await?;
    let text = test_box
        .stdout_of("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | grep -v lo | wc -l; cut -f2 /proc/net/route | grep -c 00000000")
        .await?;
    ensure!(
        text == "1\n1\n",
        "expected one interface and one default route: {text:?}"
    );
    Ok(())
}

/// A name server may drop a query of the box or of the host, but not every time.
const TRIES: u32 = 3;

/// Queries the name servers of the box for the root servers. Any response shows that the box has a network.
const ASK: &str = r"
import socket, struct, sys
query = struct.pack('>HHHHHH', 0x4242, 0x0100, 1, 0, 0, 0) + b'\0' + struct.pack('>HH', 2, 1)
servers = [l.split()[1] for l in open('/etc/resolv.conf') if l.startswith('nameserver')]
for server in servers:
    family = socket.AF_INET6 if ':' in server else socket.AF_INET
    for _ in range(3):
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.settimeout(4)
            try:
                s.sendto(query, (server, 53))
                if s.recv(4096)[:2] == b'\x42\x42':
                    print('answered')
                    sys.exit(0)
            except OSError as fault:
                print(server, fault, file=sys.stderr)
sys.exit('no name server of %s answers' % servers)";

async fn on_reaches_the_name_server(fixture: &Fixture) -> anyhow::Result<()> {
    if !fixture.host().network {
        return Ok(());
    }
    let test_box = fixture.start(&BoxSpec::new().network(Network::On)).await?;
    let mut attempts = TRIES;
    loop {
        let on_host = tokio::process::Command::new("/usr/bin/python3")
            .args(["-c", ASK])
            .output()
            .await?;
        let ran = test_box.run(request(&["python3", "-c", ASK])).await?;
        if (ran.code() == Some(0)) == on_host.status.success() {
            return Ok(());
        }
        attempts -= 1;
        ensure!(
            attempts > 0,
            "the host's own name server: {:?}; from the box: {:?} {:?}",
            on_host.status,
            ran.exit,
            ran.err()
        );
    }
}

/// A name that does not exist: what matters is that a name server answers.
async fn on_resolves_names_by_the_usual_call(fixture: &Fixture) -> anyhow::Result<()> {
    if !fixture.host().network {
        return Ok(());
    }
    let test_box = fixture.start(&BoxSpec::new().network(Network::On)).await?;
    let script = "import socket
try:
    socket.getaddrinfo('no-such-name.invalid', 80)
    print('found')
except socket.gaierror as fault:
    print(fault.errno)";
    // -2 is `no such name`: a server answered. -3 is `try again`: none did.
    let mut attempts = TRIES;
    loop {
        let ran = test_box.run(request(&["python3", "-c", script])).await?;
        let inside = ran.text()?;
        let outside = tokio::process::Command::new("/usr/bin/python3")
            .args(["-c", script])
            .output()
            .await?;
        let outside = String::from_utf8_lossy(&outside.stdout).into_owned();
        if inside == outside {
            return Ok(());
        }
        attempts -= 1;
        ensure!(attempts > 0, "inside {inside:?}, on the host {outside:?}");
    }
}

async fn on_is_refused_where_it_cannot_be_had(fixture: &Fixture) -> anyhow::Result<()> {
    let answer = fixture
        .try_start(&BoxSpec::new().network(Network::On))
        .await?;
    if fixture.host().network {
        return answer.context("a networked box")?.assert_responsive().await;
    }
    let error = answer
        .err()
        .context("a networked box started on a host without network")?;
    ensure!(
        matches!(
            error,
            StartError::Unsupported { .. }
                | StartError::Missing { .. }
                | StartError::Unavailable { .. }
        ),
        "{error:?}"
    );
    Ok(())
}
