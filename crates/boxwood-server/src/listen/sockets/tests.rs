use std::os::unix::net::{UnixDatagram, UnixStream};

use super::*;

fn config(listen: &str, run_dir: &Path) -> Config {
    let flags = crate::Flags {
        config: Some("/dev/null".into()),
        listen: Some(listen.to_owned()),
        state_dir: Some(run_dir.to_owned()),
        run_dir: Some(run_dir.to_owned()),
        ..crate::Flags::default()
    };
    crate::config::load_from(&flags, [], true).expect("valid")
}

fn activated(descriptor: impl Into<OwnedFd>) -> Result<Socket, SocketError> {
    Socket::activated(ActivatedSocket {
        descriptor: descriptor.into(),
        name: "http".to_owned(),
    })
}

fn addresses(sockets: &[Socket]) -> Vec<SocketAddr> {
    sockets.iter().filter_map(Socket::tcp_address).collect()
}

#[test]
fn only_the_socket_file_of_a_stopped_daemon_is_replaced() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("boxwood.sock");
    drop(UnixListener::bind(&path).expect("bind"));
    let running = Socket::bind_unix(&path).expect("replaces");
    let refused = Socket::bind_unix(&path).err().map(|error| error.kind());
    assert_eq!(refused, Some(io::ErrorKind::AddrInUse));
    drop(running);
    remove_file(&path);
    std::fs::write(&path, "precious").expect("write");
    assert!(Socket::bind_unix(&path).is_err());
    assert!(path.exists());
}

#[test]
fn an_unusable_activated_socket_is_refused_with_its_name() {
    let check = |descriptor: OwnedFd, why: &str| {
        let error = activated(descriptor).expect_err("refused").to_string();
        assert!(error.contains("`http`") && error.contains(why), "{error}");
    };
    let file = tempfile::tempfile().expect("a file");
    check(file.into(), "not a socket");
    let (one, _other) = UnixStream::pair().expect("a pair");
    check(one.into(), "not a listening socket");
    let datagram = UnixDatagram::unbound().expect("a socket");
    check(datagram.into(), "not a stream");
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    check(udp.into(), "not a stream");
}

#[test]
fn sockets_of_the_service_manager_replace_configured_ones() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let config = config("127.0.0.1:0", dir.path());
    let path = dir.path().join("given.sock");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = tcp.local_addr().expect("an address");
    let duplicate = tcp.try_clone().expect("a second descriptor");
    let unix = UnixListener::bind(&path).expect("bind");
    let offered = vec![
        activated(tcp).expect("tcp"),
        activated(duplicate).expect("the same"),
        activated(unix).expect("unix"),
    ];
    let chosen = choose(&config, offered).expect("chosen");
    assert_eq!(addresses(&chosen.used), [address]);
    assert_eq!(chosen.used.len(), 2, "{:?}", chosen.used);
    assert!(chosen.used.iter().all(|socket| socket.own_file().is_none()));
    assert!(!dir.path().join("boxwood.sock").exists());
}

#[test]
fn sockets_of_the_previous_daemon_are_used_if_they_are_configured() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let config_before = config("127.0.0.1:0", dir.path());
    let before = choose(&config_before, Vec::new()).expect("bound");
    let [address] = addresses(&before.used)[..] else {
        panic!("{before:?}");
    };
    let handed_over = |sockets: &[Socket]| -> Vec<Socket> {
        let over = |socket: &Socket| {
            let descriptor = socket.as_fd().try_clone_to_owned().expect("a copy");
            Socket::handed_over(descriptor, socket.owner).expect("usable")
        };
        sockets.iter().map(over).collect()
    };

    let same = choose(&config_before, handed_over(&before.used)).expect("chosen");
    assert_eq!(addresses(&same.used), [address]);
    assert_eq!((same.used.len(), same.unused.len()), (2, 0));

    let other_dir = tempfile::tempdir().expect("temporary directory");
    let moved = config("127.0.0.2:0", other_dir.path());
    let chosen = choose(&moved, handed_over(&before.used)).expect("chosen");
    assert_ne!(addresses(&chosen.used), [address]);
    assert_eq!(addresses(&chosen.unused), [address]);
    let unused_file = chosen.unused.iter().find_map(Socket::own_file);
    assert_eq!(unused_file, Some(&*dir.path().join("boxwood.sock")));
    assert!(other_dir.path().join("boxwood.sock").exists());
}
