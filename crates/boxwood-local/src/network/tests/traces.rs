//! What is left on the host after a release, a failure and a crash.

use super::*;

#[test]
fn boxes_pass_a_drop_policy_of_another_program_which_is_restored_afterwards() {
    on_a_host_of_its_own(|| {
        let (networks, _) = networks("drop-policy");
        let table = format!("bwtest{}", std::process::id());
        let nft = |arguments: &[&str]| {
            let output = Command::new("nft").args(arguments).output().unwrap();
            assert!(output.status.success(), "nft {arguments:?}: {output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let outside = Outside::new("bwtout4", [198, 51, 102]);
        nft(&["add", "table", "ip", &table]);
        let policy = "{ type filter hook forward priority 0; policy drop; }";
        nft(&["add", "chain", "ip", &table, "FORWARD", policy]);
        let before = nft(&["list", "table", "ip", &table]);
        let sandbox = Namespace::new();
        let lease = sandbox.attach(&networks).unwrap();
        sandbox.configure(lease.interface());
        let (_listener, address) = outside.listen();
        let reached = sandbox.connects(address, GOOD);
        lease.release().unwrap();
        let after = nft(&["list", "table", "ip", &table]);
        nft(&["delete", "table", "ip", &table]);
        assert!(reached, "stopped by the other table");
        assert_eq!(after, before);
    });
}

#[test]
fn leftovers_of_a_dead_daemon_are_removed() {
    on_a_host_of_its_own(|| {
        let instance = format!("test-crash-{}", std::process::id());
        let tag = Tag::new(&instance);
        let before = Footprint::of(&tag);
        let sandbox = Namespace::new();
        let networks = Networks::new(&instance, NetworkSettings::default());
        // A killed daemon runs no destructor.
        std::mem::forget(sandbox.attach(&networks).unwrap());
        assert_ne!(Footprint::of(&tag), before);
        Networks::remove_instance(&instance).unwrap();
        assert_eq!(Footprint::of(&tag), before);
        Networks::remove_instance(&instance).unwrap();
    });
}

#[test]
fn a_running_box_keeps_its_network_when_daemons_change() {
    on_a_host_of_its_own(|| {
        let instance = format!("test-takeover-{}", std::process::id());
        let tag = Tag::new(&instance);
        let before = Footprint::of(&tag);
        let networks = || Networks::new(&instance, NetworkSettings::default());
        let (adopted_box, forgotten_box) = (Namespace::new(), Namespace::new());
        let first = networks();
        let (lease, other) = (
            adopted_box.attach(&first).unwrap(),
            forgotten_box.attach(&first).unwrap(),
        );
        let record = serde_json::to_string(&lease.lease.record()).unwrap();
        let record: LeaseRecord = serde_json::from_str(&record).unwrap();
        lease.lease.detach();
        std::mem::forget(other);
        let running = Footprint::of(&tag);

        let second = networks();
        // Creating and removing a box before the claim must not remove the rules.
        let passing = Namespace::new();
        passing.attach(&second).unwrap().release().unwrap();
        assert_eq!(Footprint::of(&tag), running);

        let lease = second.claim(&record).unwrap();
        assert!(matches!(
            second.claim(&record),
            Err(NetError::NotClaimed { .. })
        ));
        second.remove_leftovers().unwrap();
        let links = netlink::links_with_prefix(&tag.links()).unwrap();
        assert_eq!(links.len(), 1, "{links:?}");
        assert_eq!(lease.record(), record);
        lease.release().unwrap();
        assert_eq!(Footprint::of(&tag), before);
    });
}

#[test]
fn a_failed_attach_leaves_no_links_or_rules() {
    on_a_host_of_its_own(|| {
        let (networks, tag) = networks("failed");
        let before = Footprint::of(&tag);
        let sandbox = Namespace::new();
        // The interface name inside is in use, so the veth pair cannot be created.
        sandbox.ip(&["link", "add", "eth0", "type", "veth"]);
        let error = sandbox.attach(&networks).unwrap_err();
        assert!(matches!(error, NetError::Link { .. }), "{error:?}");
        assert_eq!(Footprint::of(&tag), before);
    });
}

#[test]
fn an_exhausted_pool_names_the_setting_to_change() {
    on_a_host_of_its_own(|| {
        let settings = NetworkSettings {
            pool: Some("10.214.0.0/30".parse::<Subnet>().unwrap()),
            ..NetworkSettings::default()
        };
        let networks = Networks::new(&format!("test-full-{}", std::process::id()), settings);
        let boxes = [Namespace::new(), Namespace::new()];
        let _lease = boxes[0].attach(&networks).unwrap();
        let error = boxes[1].attach(&networks).unwrap_err();
        assert!(matches!(error, NetError::PoolExhausted { .. }), "{error:?}");
        assert!(error.hint().unwrap().contains("network.pool"));
    });
}

#[test]
fn a_hundred_networks_leave_no_links_rules_or_settings() {
    on_a_host_of_its_own(|| {
        let (networks, tag) = networks("churn");
        let before = Footprint::of(&tag);
        let sandbox = Namespace::new();
        for _ in 0..100 {
            sandbox.attach(&networks).unwrap().release().unwrap();
        }
        assert_eq!(Footprint::of(&tag), before);

        let started = Instant::now();
        thread::scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|| {
                    let sandbox = Namespace::new();
                    let lease = sandbox.attach(&networks).unwrap();
                    sandbox.configure(lease.interface());
                    // Half of the boxes die before their network is removed.
                    if lease.interface().address.octets()[3] % 8 == 2 {
                        drop(sandbox);
                    }
                    lease.release().unwrap();
                });
            }
        });
        let elapsed = started.elapsed();
        assert!(
            elapsed < Duration::from_secs(20),
            "50 boxes took {elapsed:?}"
        );
        assert_eq!(Footprint::of(&tag), before);
    });
}
