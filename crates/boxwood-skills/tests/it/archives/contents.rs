//! Archives that are more, or other, than they say.

use boxwood_skills::{Limits, Oversize, SkillError};

use super::{refused, refused_by};
use crate::fixture::Fixture;
use crate::zip_maker::{Raw, archive, deflated_zeroes, skill, stored};

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
fn a_wrong_declared_size_is_refused() {
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
