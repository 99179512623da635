//! Members with names and kinds that reach for something else.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use boxwood_skills::{SkillError, ZipRequest, ZipSelection};

use super::{install, refused};
use crate::fixture::Fixture;
use crate::zip_maker::{Raw, archive, skill, stored};

fn refuses_member(member: Raw) {
    let shown = String::from_utf8_lossy(&member.name).into_owned();
    let error = refused(&archive(&[skill("one"), member]));
    assert!(
        matches!(error, SkillError::UnsafeMember { .. }),
        "{shown:?}: {error:?}"
    );
}

#[test]
fn cannot_step_up() {
    for name in [
        "../evil",
        "a/../../evil",
        "a/../b",
        "..",
        "a/..",
        "./../evil",
    ] {
        refuses_member(stored(name, "x"));
    }
}

#[test]
fn cannot_name_an_absolute_path() {
    for name in ["/etc/evil", "//evil", "C:/evil", "c:evil"] {
        refuses_member(stored(name, "x"));
    }
}

#[test]
fn cannot_hide_a_path_behind_backslashes() {
    for name in ["..\\evil", "\\evil", "a\\b", "\\\\server\\share"] {
        refuses_member(stored(name, "x"));
    }
}

#[test]
fn cannot_cut_a_name_with_a_nul() {
    refuses_member(stored("SKILL.md\0.txt", "x"));
    refuses_member(stored("a\nb", "x"));
    refuses_member(stored("a\x1b[2J", "x"));
}

#[test]
fn a_name_that_is_not_utf8_is_refused_or_read_as_the_old_code_page() {
    // Flagged as UTF-8 and none.
    let error = refused(&archive(&[skill("one"), stored([0xff, 0xfe, b'x'], "x")]));
    assert!(
        matches!(
            error,
            SkillError::UnsafeMember { .. } | SkillError::UploadNotZip
        ),
        "{error:?}"
    );
    // Not flagged: code page 437.
    let fixture = Fixture::new();
    let old = Raw {
        flags: 0,
        ..stored([b'a', 0x81], "x")
    };
    install(&fixture, &archive(&[skill("one"), old]));
    assert_eq!(fixture.text("skill-upload/aü"), "x");
}

#[test]
fn a_very_long_name_is_refused() {
    for name in ["x".repeat(300), "d/".repeat(400) + "x", "y".repeat(60_000)] {
        let error = refused(&archive(&[skill("one"), stored(name, "x")]));
        assert!(matches!(error, SkillError::TooLarge { .. }), "{error:?}");
    }
}

#[test]
fn a_symlink_is_refused() {
    refuses_member(Raw {
        mode: 0o120_777,
        ..stored("link", "/etc/passwd")
    });
    // Whatever system the archive claims to come from.
    refuses_member(Raw {
        mode: 0o120_777,
        system: 0,
        ..stored("link", "../..")
    });
}

#[test]
fn a_link_cannot_be_written_through() {
    let link = Raw {
        mode: 0o120_777,
        ..stored("dir", "../../outside")
    };
    let error = refused(&archive(&[skill("one"), link, stored("dir/evil", "x")]));
    assert!(
        matches!(error, SkillError::UnsafeMember { .. }),
        "{error:?}"
    );
}

#[test]
fn devices_fifos_and_sockets_are_refused() {
    for kind in [0o020_000, 0o060_000, 0o010_000, 0o140_000] {
        refuses_member(Raw {
            mode: kind | 0o644,
            ..stored("special", "")
        });
    }
}

#[test]
fn a_directory_by_mode_and_a_file_by_name_is_refused() {
    refuses_member(Raw {
        mode: 0o040_755,
        ..stored("thing", "x")
    });
    refuses_member(Raw {
        mode: 0o100_644,
        ..stored("thing/", "")
    });
    refuses_member(Raw {
        mode: 0,
        ..stored("thing/", "hidden contents")
    });
}

#[test]
fn setuid_and_sticky_bits_are_never_applied() {
    let fixture = Fixture::new();
    let member = |name: &str, mode| Raw {
        mode,
        ..stored(name, "#!/bin/sh\n")
    };
    let directory = Raw {
        mode: 0o043_777,
        ..stored("d/", "")
    };
    let bytes = archive(&[
        skill("one"),
        member("suid", 0o104_755),
        member("sgid", 0o102_644),
        member("sticky", 0o101_777),
        member("nothing", 0o100_000),
        directory,
    ]);
    install(&fixture, &bytes);
    let mode = |name: &str| {
        let path = fixture.root().join("skill-upload").join(name);
        fs::metadata(path).expect("there").permissions().mode() & 0o7777
    };
    assert_eq!(mode("suid"), 0o755);
    assert_eq!(mode("sgid"), 0o644);
    assert_eq!(mode("sticky"), 0o755);
    assert_eq!(mode("nothing"), 0o644);
    assert_eq!(mode("d") & !0o022, 0o755);
}

#[test]
fn the_same_name_twice_is_refused() {
    let error = refused(&archive(&[
        skill("one"),
        stored("a", "1"),
        stored("a", "2"),
    ]));
    assert!(
        matches!(error, SkillError::DuplicateMember { .. }),
        "{error:?}"
    );
}

#[test]
fn names_that_differ_only_in_spelling_are_refused() {
    for (one, other) in [
        ("README", "readme"),
        ("a/b", "a/./b"),
        ("a//c", "a/c"),
        ("caf\u{e9}", "cafe\u{301}"),
        ("x", "\u{ff58}"),
        ("Dir/a", "dir/b"),
    ] {
        let error = refused(&archive(&[
            skill("s"),
            stored(one, "1"),
            stored(other, "2"),
        ]));
        assert!(
            matches!(error, SkillError::DuplicateMember { .. }),
            "{one} {other}: {error:?}"
        );
    }
}

#[test]
fn a_file_cannot_also_be_a_directory() {
    let conflicts = [
        [stored("a", "1"), stored("a/b", "2")],
        [stored("a/b", "1"), stored("a", "2")],
    ];
    for members in conflicts {
        let [one, other] = members;
        let error = refused(&archive(&[skill("s"), one, other]));
        assert!(
            matches!(error, SkillError::DuplicateMember { .. }),
            "{error:?}"
        );
    }
}

#[test]
fn a_target_suffix_cannot_lead_out() {
    let fixture = Fixture::new();
    let around = fixture.around();
    for suffix in ["../../evil", "/evil", "a/b", ".."] {
        let request = ZipRequest {
            target_suffix: suffix.to_owned(),
            ..ZipRequest::default()
        };
        let bytes = archive(&[skill("one")]);
        let error = fixture
            .store
            .install_zip(&bytes, &request, &ZipSelection::default())
            .expect_err("accepted");
        assert!(matches!(error, SkillError::TargetSuffix), "{error:?}");
    }
    assert_eq!(fixture.around(), around);
}
