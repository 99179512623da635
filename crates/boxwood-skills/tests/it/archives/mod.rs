//! One test per attack by archive. Each leaves the store and everything around it untouched.

mod contents;
mod names;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use boxwood_skills::{SkillError, ZipRequest, ZipSelection};

use crate::fixture::{Fixture, skill_md};
use crate::zip_maker::{archive, skill, stored};

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
fn leftovers_of_a_crash_are_not_listed() {
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

/// As many as fit into one message of a client.
#[test]
fn a_million_selected_paths_are_handled_quickly() {
    let fixture = Fixture::new();
    let bytes = archive(&[
        stored("a/SKILL.md", skill_md("a")),
        stored("b/SKILL.md", "b"),
    ]);
    let started = std::time::Instant::now();
    let strange: Vec<String> = (0..300_000).map(|number| format!("x{number}")).collect();
    let selection = ZipSelection {
        source_paths: strange,
        ..ZipSelection::default()
    };
    let request = ZipRequest::default();
    let error = fixture
        .store
        .install_zip(&bytes, &request, &selection)
        .expect_err("installed");
    assert!(
        matches!(error, SkillError::InvalidSourcePath { .. }),
        "{error:?}"
    );
    let selection = ZipSelection {
        source_paths: vec!["b".to_owned(); 300_000],
        ..ZipSelection::default()
    };
    let installed = fixture.store.install_zip(&bytes, &request, &selection);
    assert_eq!(installed.expect("installed").len(), 1);
    let took = started.elapsed();
    assert!(took < std::time::Duration::from_secs(30), "{took:?}");
}
