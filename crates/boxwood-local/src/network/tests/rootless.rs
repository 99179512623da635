//! The network without root: the filter inside the box, and `pasta`.

use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use boxwood_sys::nftables::{InsideRules, guard_inside};

use super::*;

/// An arbitrary uid.
const UID: &str = "61234";
const PORT: u16 = 8080;
/// The network of the default route, and another network of the host.
const OUTSIDE: [u8; 3] = [198, 51, 100];
const OTHER: [u8; 3] = [203, 0, 113];

#[test]
fn the_filter_inside_refuses_the_host_and_metadata() {
    on_a_host_of_its_own(|| {
        // A direct link to a neighbour, as with `pasta`: there is no filter outside.
        let outside = Outside::new("bwtout0", [198, 51, 100]);
        let host = Ipv4Addr::new(198, 51, 100, 1);
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let at_host = SocketAddr::from((host, listener.local_addr().unwrap().port()));
        let sandbox = &outside.namespace;
        assert!(sandbox.connects(at_host, GOOD), "before");
        let inner = sandbox.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
        let at_box = SocketAddr::from((outside.address, inner.local_addr().unwrap().port()));
        assert!(TcpStream::connect_timeout(&at_box, GOOD).is_ok(), "before");

        let neighbour = Ipv4Addr::new(198, 51, 100, 7);
        let address = ["addr", "add", "198.51.100.7/32", "dev", "bwtout0"];
        assert!(Command::new("ip").args(address).status().unwrap().success());
        let metadata = ["addr", "add", "169.254.169.254/32", "dev", "bwtout0"];
        assert!(
            Command::new("ip")
                .args(metadata)
                .status()
                .unwrap()
                .success()
        );
        let rules = InsideRules {
            resolvers: vec![host],
            denied: vec![Subnet::host(host)],
        };
        sandbox.run(|| guard_inside(&rules).unwrap());

        let open = SocketAddr::from((neighbour, at_host.port()));
        assert!(sandbox.connects(open, GOOD), "what is not denied");
        assert!(!sandbox.connects(at_host, SHORT), "the host");
        let metadata = SocketAddr::from(([169, 254, 169, 254], at_host.port()));
        assert!(TcpStream::connect_timeout(&metadata, GOOD).is_ok());
        assert!(!sandbox.connects(metadata, SHORT), "metadata");
        // Only the port of the name server. The socket exists, so a failure comes from the filter.
        let _dns = TcpListener::bind((host, 53)).unwrap();
        assert!(
            sandbox.connects(SocketAddr::from((host, 53)), GOOD),
            "names"
        );
        assert!(
            TcpStream::connect_timeout(&at_box, SHORT).is_err(),
            "into the box"
        );
        let itself = SocketAddr::from((Ipv4Addr::LOCALHOST, at_box.port()));
        assert!(sandbox.connects(itself, GOOD), "its own loopback");
    });
}

/// Runs [`as_an_ordinary_user`] with another uid and a `/dev/net/tun` that all users may open, as most
/// distributions have it.
#[test]
fn pasta_connects_the_box_of_an_ordinary_user() {
    let directory = std::env::temp_dir().join(format!("bwtest-pasta-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o777)).unwrap();
    // Other users may not be able to read the build directory.
    let program = directory.join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let script = format!(
        "mknod -m 666 {0}/tun c 10 200 && mount --bind {0}/tun /dev/net/tun && cd {0} && \
         exec setpriv --reuid {UID} --regid {UID} --clear-groups \
         ./test --ignored --exact network::tests::rootless::as_an_ordinary_user",
        directory.display()
    );
    let mut output = None;
    on_a_host_of_its_own(|| {
        let outside = Outside::new("bwtout0", OUTSIDE);
        let _other = Outside::new("bwtout1", OTHER);
        metadata_addresses(&outside);
        let uplink = netlink::link_by_name("bwtout0").unwrap().index;
        netlink::add_default_route(uplink, outside.address).unwrap();
        let serve = |port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
        let _servers = outside.namespace.run(|| [serve(53), serve(PORT)]);
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script]);
        output = Some(command.output().unwrap());
    });
    std::fs::remove_dir_all(&directory).unwrap();
    expect_one_passed(&output.unwrap());
}

#[test]
#[ignore = "started by pasta_connects_the_box_of_an_ordinary_user, under another uid"]
fn as_an_ordinary_user() {
    let directory = std::env::current_dir().unwrap().join("pasta");
    let server = Ipv4Addr::new(OUTSIDE[0], OUTSIDE[1], OUTSIDE[2], 2);
    let settings = NetworkSettings {
        dns: vec![server],
        ..NetworkSettings::default()
    };
    let pasta = Pasta::new(&directory, settings);
    let sandbox = Namespace::new();
    let (lease, inside) = pasta.attach("box", sandbox.pid()).unwrap();
    assert_eq!(inside.dns, [server]);

    let loopback = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let loopback_port = loopback.local_addr().unwrap().port();
    let _everywhere = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
    let connects = |address, port| connects(&sandbox, address, port);
    let metadata = Ipv4Addr::new(169, 254, 169, 254);
    let host = |network: [u8; 3]| Ipv4Addr::new(network[0], network[1], network[2], 1);
    // `pasta` alone lets these through, which is why there is a filter inside.
    assert!(connects(metadata, PORT), "metadata, before the filter");
    assert!(
        connects(host(OTHER), PORT),
        "another address of the host, before"
    );

    guard_from_inside(&sandbox, &rules_of(&inside));
    assert!(connects(server, 53), "the name server");
    assert!(connects(server, PORT), "the outside");
    assert!(!connects(metadata, PORT), "metadata");
    assert!(!connects(host(OTHER), PORT), "another address of the host");
    assert!(!connects(host(OUTSIDE), PORT), "the host's main address");
    assert!(
        !connects(Ipv4Addr::LOCALHOST, loopback_port),
        "the host's loopback"
    );

    let pid = std::fs::read_to_string(directory.join("box/pid")).unwrap();
    let process = format!("/proc/{}", pid.trim());
    assert!(std::fs::exists(&process).unwrap());
    lease.release().unwrap();
    assert!(
        !std::fs::exists(&process).unwrap(),
        "`pasta` is still there"
    );
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);

    // A killed daemon runs no destructor. The next one claims the wanted boxes and stops the rest.
    let (kept, _) = pasta.attach("kept", sandbox.pid()).unwrap();
    let record = kept.record().unwrap();
    let kept = std::mem::ManuallyDrop::new(kept);
    assert!(pasta.claim("another", record).is_err(), "of another box");
    let claimed = pasta.claim("kept", record).unwrap();
    pasta.remove_leftovers(|name| name == "kept").unwrap();
    thread::sleep(Duration::from_millis(50));
    assert!(!kept.has_ended(), "a wanted `pasta` was ended");
    claimed.release().unwrap();
    assert!(kept.has_ended(), "`pasta` outlives its claim");
    assert!(pasta.claim("kept", record).is_err(), "a dead one");

    let (unclaimed, _) = pasta.attach("left", sandbox.pid()).unwrap();
    let unclaimed = std::mem::ManuallyDrop::new(unclaimed);
    pasta.remove_leftovers(|_| false).unwrap();
    let deadline = Instant::now() + GOOD;
    while !unclaimed.has_ended() {
        assert!(Instant::now() < deadline, "the leftover `pasta` is running");
        thread::sleep(Duration::from_millis(10));
    }
}

/// What init does before it drops its capabilities.
#[test]
#[ignore = "started by as_an_ordinary_user, inside the box"]
fn installs_the_rules_inside() {
    let subnets = |path: &str| -> Vec<Subnet> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| line.parse().unwrap()).collect()
    };
    let resolvers = subnets("resolvers").into_iter().map(Subnet::address);
    let rules = InsideRules {
        resolvers: resolvers.collect(),
        denied: subnets("denied"),
    };
    guard_inside(&rules).unwrap();
}

fn guard_from_inside(sandbox: &Namespace, rules: &InsideRules) {
    let joined = |lines: Vec<String>| lines.join("\n");
    let resolvers = rules.resolvers.iter().map(ToString::to_string).collect();
    std::fs::write("resolvers", joined(resolvers)).unwrap();
    let denied = rules.denied.iter().map(ToString::to_string).collect();
    std::fs::write("denied", joined(denied)).unwrap();
    let mut command = inside(sandbox);
    command.args(["./test", "--ignored", "--exact"]);
    command.arg("network::tests::rootless::installs_the_rules_inside");
    expect_one_passed(&command.output().unwrap());
}

fn connects(sandbox: &Namespace, address: Ipv4Addr, port: u16) -> bool {
    let status = inside(sandbox)
        .args(["timeout", "2", "bash", "-c"])
        .arg(format!("exec 3<>/dev/tcp/{address}/{port}"))
        .stderr(Stdio::null())
        .status();
    status.unwrap().success()
}

/// A child process, because a process with threads cannot join a user namespace.
fn inside(sandbox: &Namespace) -> Command {
    let mut command = Command::new("nsenter");
    command
        .args(["--user", "--net", "--preserve-credentials", "--target"])
        .arg(sandbox.child.id().to_string());
    command
}

fn expect_one_passed(output: &Output) {
    let last_output = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{last_output}");
    assert!(last_output.contains("1 passed"), "{last_output}");
}
