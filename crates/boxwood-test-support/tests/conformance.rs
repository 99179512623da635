//! The fake backend passes the conformance cases that need no isolation.
//!
//! The other groups are not run. Most of them test isolation, which the fake backend does not have.

use std::sync::Arc;

use boxwood_api::Mechanism;
use boxwood_suites::{Fixture, Host, MissingMechanism, Privilege, conformance, run_case};
use boxwood_test_support::FakeBackend;

/// Groups of cases that mostly need no isolation.
const GROUPS: [&str; 7] = [
    "exec",
    "streams",
    "terminal",
    "kill",
    "file_tools",
    "files",
    "live_mounts",
];

/// Cases of those groups that need a root file system, a uid or a process namespace, and why.
const NEEDS_ISOLATION: [(&str, &str); 23] = [
    (
        "file_tools::tools_have_the_rights_of_a_command",
        "there is no `/proc` in the box",
    ),
    (
        "exec::a_long_script_runs_like_a_short_one",
        "descriptors that the test itself was started with are there too",
    ),
    (
        "exec::a_program_that_cannot_be_executed_exits_126",
        "commands name `/workspace`",
    ),
    (
        "exec::the_working_directory_is_created",
        "`pwd` shows the host's path",
    ),
    (
        "files::what_is_written_is_read_back",
        "commands name `/home/box`",
    ),
    (
        "files::stat_reports_kind_size_mode_and_target",
        "there is no `/dev` in the box",
    ),
    (
        "files::moving_overwrites_only_on_request",
        "commands name `/tmp`",
    ),
    (
        "files::each_fault_has_its_own_kind",
        "a test as root may read everything",
    ),
    (
        "files::symlinks_stay_inside_the_box",
        "there is no `/etc` in the box",
    ),
    (
        "files::files_belong_to_the_box_user",
        "there is no user of its own",
    ),
    ("files::a_full_area_is_reported", "there is no quota"),
    (
        "kill::a_growing_tree_dies",
        "a process that only forks the next one may be missed by every scan of `/proc`",
    ),
    (
        "live_mounts::a_program_that_runs_sees_a_mount_that_joins",
        "commands see the host's mounts",
    ),
    (
        "live_mounts::a_mount_joins_every_kind_of_workspace",
        "commands see the host's mounts",
    ),
    (
        "live_mounts::a_read_only_mount_that_joined_cannot_be_written",
        "commands see the host's mounts",
    ),
    (
        "live_mounts::a_writable_mount_that_joined_keeps_the_hosts_owner",
        "commands see the host's mounts",
    ),
    (
        "live_mounts::a_single_file_may_join",
        "commands see the host's mounts",
    ),
    (
        "live_mounts::a_source_made_anew_takes_the_old_ones_place",
        "commands see the host's mounts",
    ),
    (
        "live_mounts::another_mode_takes_the_old_ones_place",
        "commands see the host's mounts",
    ),
    (
        "live_mounts::a_mount_joins_outside_the_workspace",
        "commands see the host's mounts",
    ),
    (
        "live_mounts::a_place_that_cannot_be_made_is_refused",
        "commands see the host's mounts",
    ),
    (
        "live_mounts::the_directory_that_joins_is_the_one_that_was_opened",
        "commands see the host's mounts",
    ),
    (
        "live_mounts::many_mounts_join_at_once",
        "commands see the host's mounts",
    ),
];

fn host() -> Host {
    let absent = Mechanism::ALL.map(|mechanism| MissingMechanism {
        mechanism,
        why: "the fake backend has no isolation",
    });
    Host {
        missing_mechanisms: absent.to_vec(),
        ..Host::new(Privilege::Rootless { subuids: false })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cases_that_need_no_isolation_pass() {
    let mut failures = Vec::new();
    let mut ran = 0;
    for case in conformance() {
        let group = case.name.split("::").next().unwrap_or_default();
        if !GROUPS.contains(&group) || NEEDS_ISOLATION.iter().any(|(name, _)| *name == case.name) {
            continue;
        }
        ran += 1;
        let fixture =
            Fixture::new(Arc::clone(&FakeBackend::new()) as _, host()).expect("a fixture");
        if let Err(error) = run_case(case, fixture).await {
            failures.push(format!("{}: {error:#}", case.name));
        }
    }
    assert!(ran > 20, "only {ran} cases ran");
    let known: Vec<_> = conformance().iter().map(|case| case.name).collect();
    for (name, why) in NEEDS_ISOLATION {
        assert!(known.contains(&name), "no case is called {name} ({why})");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
