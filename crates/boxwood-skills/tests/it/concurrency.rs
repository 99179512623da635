//! Several callers at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use boxwood_skills::{NewSkill, SkillError, SkillPatch, ZipRequest, ZipSelection};

use crate::fixture::{Fixture, skill_md};
use crate::zip_maker::{archive, stored};

#[test]
fn of_two_who_create_one_name_one_succeeds() {
    let fixture = Fixture::new();
    for round in 0..10 {
        let new = NewSkill {
            name: format!("skill-{round}"),
            ..NewSkill::default()
        };
        let results: Vec<_> = thread::scope(|scope| {
            let racers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| fixture.store.create(&new)))
                .collect();
            racers
                .into_iter()
                .map(|racer| racer.join().expect("no panic"))
                .collect()
        });
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
        for error in results.into_iter().filter_map(Result::err) {
            assert!(matches!(error, SkillError::NameTaken { .. }), "{error:?}");
        }
    }
    assert_eq!(fixture.names().len(), 10);
}

#[test]
fn concurrent_writes_leave_one_complete_file() {
    let fixture = Fixture::new();
    fixture.create("one");
    let contents = [vec![b'a'; 50_000], vec![b'b'; 70_000]];
    thread::scope(|scope| {
        for content in &contents {
            let store = fixture.store.clone();
            scope.spawn(move || {
                for _ in 0..15 {
                    store.write("one", "shared.txt", content).expect("written");
                }
            });
        }
        for _ in 0..60 {
            if let Ok(file) = fixture.store.read_bytes("one", "shared.txt") {
                assert!(contents.contains(&file.content));
            }
        }
    });
    let left = fixture
        .store
        .list_files("one", ".", true, 100)
        .expect("listed");
    assert_eq!(left.entries.len(), 2, "{left:?}");
}

#[test]
fn updates_of_different_fields_are_both_kept() {
    let fixture = Fixture::new();
    fixture.create("one");
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..10 {
                let patch = SkillPatch {
                    description: Some(format!("description {round}")),
                    ..SkillPatch::default()
                };
                fixture.store.update("one", &patch).expect("updated");
            }
        });
        scope.spawn(|| {
            for round in 0..10 {
                let patch = SkillPatch {
                    instructions: Some(format!("body {round}\n")),
                    ..SkillPatch::default()
                };
                fixture.store.update("one", &patch).expect("updated");
            }
        });
    });
    let skill = fixture.store.get("one").expect("read").expect("there");
    assert_eq!(skill.description, "description 9");
    assert_eq!(skill.instructions, "body 9\n");
}

#[test]
fn a_list_during_installs_shows_only_complete_skills() {
    let fixture = Fixture::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..20 {
                let name = format!("s{round}");
                let mut members = vec![stored("SKILL.md", skill_md(&name))];
                members.extend((0..20).map(|file| stored(format!("f{file}"), [b'x'; 1000])));
                let request = ZipRequest {
                    filename: format!("{name}.zip"),
                    ..ZipRequest::default()
                };
                let selection = ZipSelection::default();
                let bytes = archive(&members);
                fixture
                    .store
                    .install_zip(&bytes, &request, &selection)
                    .expect("installed");
                if round % 3 == 0 {
                    fixture.store.delete(&name).expect("deleted");
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            for skill in fixture.store.list().expect("listed") {
                assert!(skill.name.starts_with('s'), "{skill:?}");
                let listing = fixture.store.list_files(&skill.name, ".", true, 100);
                if let Ok(listing) = listing {
                    let round: usize = skill.name[1..].parse().expect("number");
                    // One that is being deleted may be seen while it goes.
                    assert!(
                        round.is_multiple_of(3) || listing.entries.len() == 21,
                        "{listing:?}"
                    );
                }
            }
            assert!(fixture.store.problems().expect("problems").is_empty());
        }
    });
    assert_eq!(fixture.names().len(), 13);
}
