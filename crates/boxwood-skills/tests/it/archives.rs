//! One test per attack by archive. Each leaves the store and everything around it untouched.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use boxwood_skills::{Limits, Oversize, SkillError, ZipRequest, ZipSelection};

use crate::fixture::{Fixture, skill_md};
use crate::zip_maker::{Raw, archive, deflated_zeroes, skill, stored};

/// Installs, expects a refusal, and looks whether anything is there that was not before.
fn refused_by(fixture: &Fixture, bytes: &[u8]) -> SkillError {
    let around = fixture.around();
    let inside = fixture.inside();
    let request = ZipRequest::default();
    let preview = fixture.store.preview_zip(bytes, &request);
    assert!(preview.is_err(), "preview accepted it: {preview:?}");
    let error = fixture
        .store
        .install_zip(bytes, &request, &ZipSelection::default())
        .expect_err("accepted");
    assert_eq!(fixture.around(), around);
    assert_eq!(fixture.inside(), inside);
    error
}

fn refused(bytes: &[u8]) -> SkillError {
    refused_by(&Fixture::new(), bytes)
}

fn refuses_member(member: Raw) {
    let shown = String::from_utf8_lossy(&member.name).into_owned();
    let error = refused(&archive(&[skill("one"), member]));
    assert!(
        matches!(error, SkillError::UnsafeMember { .. }),
        "{shown:?}: {error:?}"
    );
}

fn install(fixture: &Fixture, bytes: &[u8]) -> Vec<boxwood_skills::Skill> {
    fixture
        .store
        .install_zip(bytes, &ZipRequest::default(), &ZipSelection::default())
        .expect("installed")
}

#[test]
fn a_plain_archive_is_installed() {
    let fixture = Fixture::new();
    let skills = install(&fixture, &archive(&[skill("one"), stored("a/b.txt", "b")]));
    assert_eq!(skills[0].name, "one");
    assert_eq!(fixture.text("skill-upload/a/b.txt"), "b");
    assert_eq!(fixture.names(), ["one"]);
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
    // Not flagged: code page 437, as everybody reads it.
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
fn a_bomb_by_ratio_is_refused() {
    let bytes = archive(&[skill("one"), deflated_zeroes("zeroes", 32 << 20)]);
    assert!(bytes.len() < 64 << 10);
    let error = refused(&bytes);
    assert!(
        matches!(
            error,
            SkillError::TooLarge {
                what: Oversize::Ratio,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn a_bomb_by_total_size_is_refused() {
    let limits = Limits {
        max_unpacked_bytes: 1000,
        ..Limits::default()
    };
    let parts: Vec<Raw> = (0..20)
        .map(|number| stored(format!("f{number}"), [b'x'; 100]))
        .chain([skill("one")])
        .collect();
    let error = refused_by(&Fixture::with(limits), &archive(&parts));
    assert!(
        matches!(
            error,
            SkillError::TooLarge {
                what: Oversize::UnpackedBytes,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn a_single_huge_file_is_refused() {
    let limits = Limits {
        max_file_bytes: 100,
        ..Limits::default()
    };
    let bytes = archive(&[skill("one"), stored("big", [b'x'; 101])]);
    let error = refused_by(&Fixture::with(limits), &bytes);
    assert!(
        matches!(
            error,
            SkillError::TooLarge {
                what: Oversize::FileBytes,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn a_bomb_by_count_is_refused() {
    let mut members: Vec<Raw> = (0..11_000).map(|n| stored(format!("f{n}"), "")).collect();
    members.push(skill("one"));
    let error = refused(&archive(&members));
    assert!(
        matches!(
            error,
            SkillError::TooLarge {
                what: Oversize::Entries,
                ..
            }
        ),
        "{error:?}"
    );
    // Few members, many implied directories.
    let limits = Limits {
        max_entries: 50,
        ..Limits::default()
    };
    let members: Vec<Raw> = (0..10)
        .map(|n| stored(format!("{n}/a/b/c/d/e/f"), ""))
        .chain([skill("one")])
        .collect();
    let error = refused_by(&Fixture::with(limits), &archive(&members));
    assert!(
        matches!(
            error,
            SkillError::TooLarge {
                what: Oversize::Entries,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn a_size_that_lies_is_refused() {
    let mut small = deflated_zeroes("zeroes", 1 << 20);
    small.size = 10;
    assert!(matches!(
        refused(&archive(&[skill("s"), small])),
        SkillError::UploadNotZip
    ));
    let mut large = deflated_zeroes("zeroes", 1000);
    large.size = 100_000;
    assert!(matches!(
        refused(&archive(&[skill("s"), large])),
        SkillError::UploadNotZip
    ));
}

#[test]
fn a_wrong_checksum_is_refused() {
    let mut wrong = stored("a", "contents");
    wrong.crc ^= 1;
    assert!(matches!(
        refused(&archive(&[skill("s"), wrong])),
        SkillError::UploadNotZip
    ));
}

#[test]
fn entries_that_share_their_bytes_are_refused() {
    let kernel = deflated_zeroes("kernel", 1 << 20);
    let mut members = vec![skill("one"), kernel.clone()];
    for number in 0..100 {
        members.push(Raw {
            name: format!("f{number}").into_bytes(),
            shares: Some(1),
            ..kernel.clone()
        });
    }
    let error = refused(&archive(&members));
    assert!(
        matches!(
            error,
            SkillError::OverlappingMembers | SkillError::UploadNotZip
        ),
        "{error:?}"
    );
}

#[test]
fn two_headers_that_disagree_are_refused() {
    let two_faced = Raw {
        local_name: Some(b"../evil".to_vec()),
        ..stored("a-safe-n", "x")
    };
    assert!(matches!(
        refused(&archive(&[skill("s"), two_faced])),
        SkillError::UploadNotZip
    ));
}

#[test]
fn an_encrypted_entry_is_refused() {
    let secret = Raw {
        flags: 0x801,
        ..stored("secret", [0; 20])
    };
    let error = refused(&archive(&[skill("s"), secret]));
    assert!(
        matches!(error, SkillError::EncryptedMember { .. }),
        "{error:?}"
    );
}

#[test]
fn an_unknown_compression_is_refused() {
    for method in [1, 9, 12, 14, 93, 99] {
        let odd = Raw {
            method,
            ..stored("odd", "x")
        };
        let error = refused(&archive(&[skill("s"), odd]));
        assert!(
            matches!(
                error,
                SkillError::UnsupportedMember { .. } | SkillError::UploadNotZip
            ),
            "{method}: {error:?}"
        );
    }
}

#[test]
fn zip64_fields_cannot_lie_about_sizes() {
    // A zip64 extra field that claims 2^62 bytes.
    let mut extra = vec![1, 0, 16, 0];
    extra.extend((1_u64 << 62).to_le_bytes());
    extra.extend((1_u64 << 62).to_le_bytes());
    let huge = Raw {
        extra,
        size: u32::MAX,
        ..stored("huge", "x")
    };
    let error = refused(&archive(&[skill("s"), huge]));
    assert!(
        matches!(
            error,
            SkillError::TooLarge { .. } | SkillError::UploadNotZip
        ),
        "{error:?}"
    );
}

#[test]
fn bytes_that_are_no_archive_are_refused() {
    assert!(matches!(refused(b""), SkillError::UploadEmpty));
    for bytes in [&b"x"[..], b"PK", b"PK\x03\x04", b"PK\x05\x06", &[0; 100]] {
        assert!(matches!(refused(bytes), SkillError::UploadNotZip));
    }
    let whole = archive(&[skill("one"), stored("a", "b")]);
    for length in 1..whole.len() - 1 {
        let error = refused(&whole[..length]);
        assert!(
            matches!(error, SkillError::UploadNotZip),
            "{length}: {error:?}"
        );
    }
    let limits = Limits {
        max_zip_bytes: 10,
        ..Limits::default()
    };
    let error = refused_by(&Fixture::with(limits), &whole);
    assert!(
        matches!(
            error,
            SkillError::TooLarge {
                what: Oversize::ZipBytes,
                ..
            }
        ),
        "{error:?}"
    );
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

#[test]
fn a_half_done_installation_is_undone() {
    let fixture = Fixture::new();
    fixture.put("skill-b-upload/mine.txt", "mine");
    let inside = fixture.inside();
    let bytes = archive(&[
        stored("a/SKILL.md", skill_md("ay")),
        stored("b/SKILL.md", skill_md("bee")),
    ]);
    let selection = ZipSelection {
        source_paths: vec!["a".to_owned(), "b".to_owned()],
        ..ZipSelection::default()
    };
    let error = fixture
        .store
        .install_zip(&bytes, &ZipRequest::default(), &selection)
        .expect_err("accepted");
    assert!(
        matches!(error, SkillError::DirectoryExists { .. }),
        "{error:?}"
    );
    assert_eq!(fixture.inside(), inside);
}

#[test]
fn a_broken_skill_in_an_archive_is_refused_before_it_is_installed() {
    let broken = stored("SKILL.md", "---\nname: [\n---\n");
    assert!(matches!(
        refused(&archive(&[broken])),
        SkillError::FrontMatter { .. }
    ));
    let binary = stored("SKILL.md", [0xff, 0xfe]);
    assert!(matches!(
        refused(&archive(&[binary])),
        SkillError::FileNotText { .. }
    ));
    let huge = stored("SKILL.md", vec![b'x'; (1 << 20) + 1]);
    assert!(matches!(
        refused(&archive(&[huge])),
        SkillError::TooLarge { .. }
    ));
}

#[test]
fn what_a_crash_left_behind_is_not_listed() {
    let fixture = Fixture::new();
    fixture.put(
        ".boxwood-staging-0123456789abcdef/x/SKILL.md",
        skill_md("ghost"),
    );
    assert!(fixture.names().is_empty());
    fixture.create("real");
    assert_eq!(fixture.names(), ["real"]);
}

#[test]
fn an_export_can_be_installed_again() {
    let fixture = Fixture::new();
    fixture.put("one/SKILL.md", skill_md("one"));
    let script = fixture.put("one/scripts/run.sh", "#!/bin/sh\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("mode");
    fixture.put("one/data.bin", [0, 255, 1]);
    fs::create_dir(fixture.root().join("one/empty")).expect("directory");
    let bytes = fixture.store.export_zip("one").expect("exported");
    assert_eq!(bytes, fixture.store.export_zip("one").expect("exported"));

    let other = Fixture::new();
    install(&other, &bytes);
    let read = other
        .store
        .read_bytes("one", "scripts/run.sh")
        .expect("read");
    assert!(read.executable);
    let data = other.store.read_bytes("one", "data.bin").expect("read");
    assert_eq!(data.content, [0, 255, 1]);
    assert!(!data.executable);
    assert!(other.root().join("skill-upload/empty").is_dir());
}
