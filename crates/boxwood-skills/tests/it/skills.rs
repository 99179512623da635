//! Listing, changing and validating, where the golden cases say nothing.

use std::fs::{self, FileTimes};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use boxwood_api::{ErrorCode, SkillWarning};
use boxwood_skills::{Limits, NewSkill, Oversize, SkillError, SkillStore, python_isoformat};

use crate::fixture::{Fixture, skill_md};

fn set_modified(path: PathBuf, time: SystemTime) {
    let file = fs::File::options().write(true).open(path).expect("open");
    file.set_times(FileTimes::new().set_modified(time))
        .expect("set");
}

#[test]
fn newest_comes_first() {
    let fixture = Fixture::new();
    let now = SystemTime::now();
    for (age, name) in [(30, "old"), (10, "new"), (20, "middle")] {
        let path = fixture.put(&format!("{name}/SKILL.md"), skill_md(name));
        set_modified(path, now - Duration::from_secs(age));
    }
    assert_eq!(fixture.names(), ["new", "middle", "old"]);
}

#[test]
fn times_are_shown_as_python_shows_them() {
    for (seconds, nanoseconds, shown) in [
        (0, 0, "1970-01-01T00:00:00+00:00"),
        (1_763_251_200, 0, "2025-11-16T00:00:00+00:00"),
        (
            1_763_251_200,
            500_000_000,
            "2025-11-16T00:00:00.500000+00:00",
        ),
        // A double holds 0.123456789 near this second as 0.12345671…
        (
            1_763_251_200,
            123_456_789,
            "2025-11-16T00:00:00.123457+00:00",
        ),
        (1_763_251_200, 999_999_999, "2025-11-16T00:00:01+00:00"),
        (-1, 0, "1969-12-31T23:59:59+00:00"),
    ] {
        let time = jiff::Timestamp::new(seconds, nanoseconds).expect("time");
        assert_eq!(python_isoformat(time), shown);
    }
}

#[test]
fn changes_by_others_show_on_the_next_call() {
    let fixture = Fixture::new();
    let path = fixture.put("one/SKILL.md", skill_md("one"));
    for round in 0..20 {
        // Same length, same instant: only reading again tells.
        fs::write(&path, format!("---\nname: n{round:02}\n---\n")).expect("written");
        assert_eq!(fixture.names(), [format!("n{round:02}")]);
    }
    let old = SystemTime::now() - Duration::from_secs(1000);
    set_modified(path.clone(), old);
    assert_eq!(fixture.names(), ["n19"]);
    fs::write(&path, "---\nname: nXX\n---\n").expect("written");
    set_modified(path.clone(), old);
    assert_eq!(fixture.names(), ["nXX"]);
    fs::rename(fixture.root().join("one"), fixture.root().join("two")).expect("renamed");
    let skill = fixture.store.get("nXX").expect("read").expect("there");
    assert!(skill.package_root.ends_with("two"));
    fixture.put("deep/er/SKILL.md", skill_md("deep"));
    assert_eq!(fixture.names().len(), 2);
    fs::remove_dir_all(fixture.root().join("two")).expect("removed");
    assert_eq!(fixture.names(), ["deep"]);
}

/// Long enough after a change, the index believes its times; a change must still show.
#[test]
fn a_settled_index_notices_changes() {
    let fixture = Fixture::new();
    let path = fixture.put("one/SKILL.md", skill_md("one"));
    std::thread::sleep(Duration::from_millis(4500));
    assert_eq!(fixture.names(), ["one"]);
    assert_eq!(fixture.names(), ["one"]);
    let times = fs::metadata(&path)
        .expect("there")
        .modified()
        .expect("time");
    fs::write(&path, skill_md("two")).expect("written");
    set_modified(path.clone(), times);
    assert_eq!(fixture.names(), ["two"]);
    let beside = path.with_file_name("other");
    fs::write(&beside, skill_md("six")).expect("written");
    fs::rename(&beside, &path).expect("renamed");
    assert_eq!(fixture.names(), ["six"]);
    fixture.put("zwei/SKILL.md", skill_md("zwei"));
    assert_eq!(fixture.names().len(), 2);
}

#[test]
fn what_cannot_be_read_is_told_apart() {
    let fixture = Fixture::new();
    fixture.put("good/SKILL.md", skill_md("good"));
    fixture.put("yaml/SKILL.md", "---\nname: [\n---\n");
    fixture.put("binary/SKILL.md", [0xff]);
    fixture.put("huge/SKILL.md", vec![b'x'; (1 << 20) + 1]);
    assert_eq!(fixture.names(), ["good"]);
    let problems = fixture.store.problems().expect("problems");
    let mut seen: Vec<_> = problems
        .iter()
        .map(|problem| {
            problem
                .path
                .file_name()
                .expect("name")
                .to_str()
                .expect("text")
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, ["binary", "huge", "yaml"], "{problems:?}");
}

#[test]
fn alias_bombs_and_deep_nesting_are_refused_quickly() {
    let fixture = Fixture::new();
    let mut bomb = "---\nname: x\na: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (one, other) in "abcdefghij".chars().zip("bcdefghijk".chars()) {
        let aliases = vec![format!("*{one}"); 9].join(", ");
        bomb.push_str(&[&format!("{other}: &{other} ["), &aliases, "]\n"].concat());
    }
    bomb += "description: *k\n---\n";
    fixture.put("bomb/SKILL.md", bomb);
    fixture.put(
        "deep/SKILL.md",
        format!("---\nname: {}\n---\n", "[".repeat(30_000)),
    );
    fixture.put("block/SKILL.md", {
        let levels: Vec<String> = (0..200).map(|level| " ".repeat(level)).collect();
        format!("---\n{}a:\n---\n", levels.join("a:\n"))
    });
    fixture.put("self/SKILL.md", "---\nname: &a [*a]\n---\n");
    fixture.put(
        "long/SKILL.md",
        format!("---\nx: {}\n---\n", "y".repeat(100_000)),
    );
    let started = std::time::Instant::now();
    assert!(fixture.names().is_empty());
    assert_eq!(fixture.store.problems().expect("problems").len(), 5);
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn listing_a_missing_store_is_empty_and_does_not_create_it() {
    let top = tempfile::tempdir().expect("temporary directory");
    let root = top.path().join("not/yet");
    let store = SkillStore::new(root.clone(), Limits::default());
    assert!(store.list().expect("listed").is_empty());
    assert!(store.get("x").expect("read").is_none());
    assert!(matches!(
        store.delete("x"),
        Err(SkillError::NotFound { .. })
    ));
    let zip = crate::zip_maker::archive(&[crate::zip_maker::skill("x")]);
    store
        .preview_zip(&zip, &boxwood_skills::ZipRequest::default())
        .expect("previewed");
    assert!(!root.exists());
    let new = NewSkill {
        name: "x".to_owned(),
        ..NewSkill::default()
    };
    store.create(&new).expect("created");
    assert_eq!(
        store.package_dir("x").expect("read"),
        Some(store.root().join("x"))
    );
}

#[test]
fn the_root_can_move() {
    let fixture = Fixture::new();
    fixture.create("here");
    fixture.put_outside("there/SKILL.md", skill_md("there"));
    fixture.store.set_root(fixture.outside());
    assert_eq!(fixture.names(), ["there"]);
    fixture.store.set_root(fixture.root());
    assert_eq!(fixture.names(), ["here"]);
    let link = fixture.outside().join("link");
    std::os::unix::fs::symlink(fixture.root(), &link).expect("link");
    fixture.store.set_root(&link);
    assert_eq!(fixture.store.root(), fixture.root());
}

#[test]
fn a_skill_cannot_replace_another_of_the_same_name() {
    let fixture = Fixture::new();
    fixture.create("good");
    let path = fixture.put("evil/SKILL.md", "---\nname: good\n---\nevil\n");
    set_modified(path, SystemTime::now() + Duration::from_secs(1000));
    let skill = fixture.store.get("good").expect("read").expect("there");
    assert!(skill.package_root.ends_with("good"));
    assert!(
        skill
            .warnings
            .iter()
            .any(|warning| warning.code == "name_shared")
    );
}

#[test]
fn deleting_a_skill_keeps_others_in_its_directory() {
    let fixture = Fixture::new();
    fixture.put("pack/a/SKILL.md", skill_md("ay"));
    fixture.put("pack/b/SKILL.md", skill_md("bee"));
    fixture.put("pack/README", "r");
    fixture.store.delete("ay").expect("deleted");
    assert_eq!(fixture.names(), ["bee"]);
    fixture.store.delete("bee").expect("deleted");
    assert!(fixture.inside().is_empty());
}

#[test]
fn a_taken_directory_is_not_overwritten() {
    let fixture = Fixture::new();
    fixture.put("dir/SKILL.md", skill_md("other"));
    let new = NewSkill {
        name: "dir".to_owned(),
        ..NewSkill::default()
    };
    let error = fixture.store.create(&new).expect_err("created");
    assert!(
        matches!(error, SkillError::DirectoryExists { .. }),
        "{error:?}"
    );
    assert_eq!(fixture.text("dir/SKILL.md"), skill_md("other"));
}

#[test]
fn imports_are_confined_where_the_operator_says_so() {
    let limits = Limits {
        import_roots: Some(vec![PathBuf::from("/nonexistent")]),
        ..Limits::default()
    };
    let fixture = Fixture::with(limits);
    let source = fixture.put_outside("src/SKILL.md", skill_md("src"));
    let source = source.parent().expect("parent").to_owned();
    let error = fixture.store.scan(&source).expect_err("scanned");
    assert_eq!(error.code(), ErrorCode::Forbidden);
    let new = NewSkill {
        name: "x".to_owned(),
        package_root: Some(source),
        ..NewSkill::default()
    };
    let error = fixture.store.create(&new).expect_err("created");
    assert_eq!(error.code(), ErrorCode::Forbidden);
    fixture.put("in/SKILL.md", skill_md("in"));
    fixture
        .store
        .scan(&fixture.root().join("in"))
        .expect("scanned");
}

#[test]
fn files_are_written_moved_and_deleted() {
    let fixture = Fixture::new();
    fixture.create("one");
    let store = &fixture.store;
    let binary: Vec<u8> = (0..=255).collect();
    let written = store.write("one", "a/b/c.bin", &binary).expect("written");
    assert_eq!(
        (written.path.as_str(), written.bytes_written),
        ("a/b/c.bin", 256)
    );
    assert_eq!(
        store.read_bytes("one", "a/b/c.bin").expect("read").content,
        binary
    );
    store
        .move_file("one", "a/b/c.bin", "x/y.bin")
        .expect("moved");
    assert_eq!(
        store.read_bytes("one", "x/y.bin").expect("read").content,
        binary
    );
    store.write("one", "z", b"z").expect("written");
    let error = store.move_file("one", "z", "x/y.bin").expect_err("moved");
    assert!(matches!(error, SkillError::FileExists { .. }), "{error:?}");
    let error = store.move_file("one", "x", "x/in").expect_err("moved");
    assert!(
        matches!(error, SkillError::PathNotUsable { .. }),
        "{error:?}"
    );
    store.delete_file("one", "x").expect("deleted");
    store.delete_file("one", "a").expect("deleted");
    let error = store.delete_file("one", "a").expect_err("deleted");
    assert_eq!(error.code(), ErrorCode::NotFound);
    for (from, to) in [("SKILL.md", "other"), ("z", "SKILL.md"), ("z", "skill.md")] {
        let error = store.move_file("one", from, to).expect_err("moved");
        assert!(
            matches!(error, SkillError::EntryFileNeeded { .. }),
            "{error:?}"
        );
    }
    let error = store.delete_file("one", "./SKILL.md").expect_err("deleted");
    assert!(
        matches!(error, SkillError::EntryFileNeeded { .. }),
        "{error:?}"
    );
    for path in [".", "", "/x", "../one/z"] {
        assert!(store.delete_file("one", path).is_err(), "{path}");
    }
    assert_eq!(fixture.inside().len(), 3);
}

#[test]
fn writing_below_a_file_or_over_a_directory_is_refused() {
    let fixture = Fixture::new();
    fixture.create("one");
    fixture.store.write("one", "f", b"x").expect("written");
    let error = fixture
        .store
        .write("one", "f/g", b"x")
        .expect_err("written");
    assert!(
        matches!(error, SkillError::SubdirectoryNotFound { .. }),
        "{error:?}"
    );
    fixture.store.write("one", "d/e", b"x").expect("written");
    let error = fixture.store.write("one", "d", b"x").expect_err("written");
    assert!(
        matches!(error, SkillError::FileNotRegular { .. }),
        "{error:?}"
    );
}

#[test]
fn the_executable_bit_is_kept_on_rewrite() {
    let fixture = Fixture::new();
    fixture.create("one");
    let path = fixture.put("one/run.sh", "old");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).expect("mode");
    fixture
        .store
        .write("one", "run.sh", b"new")
        .expect("written");
    let mode = fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn an_unreadable_entry_file_is_not_written() {
    let fixture = Fixture::new();
    fixture.create("one");
    let before = fixture.text("one/SKILL.md");
    for content in [
        &b"---\nname: [\n---\n"[..],
        &[0xff],
        &vec![b'x'; (1 << 20) + 1],
    ] {
        assert!(fixture.store.write("one", "SKILL.md", content).is_err());
    }
    assert_eq!(fixture.text("one/SKILL.md"), before);
    let renamed = b"---\nname: renamed\n---\n";
    fixture
        .store
        .write("one", "SKILL.md", renamed)
        .expect("written");
    assert_eq!(fixture.names(), ["renamed"]);
}

#[test]
fn sizes_are_bounded() {
    let limits = Limits {
        max_file_bytes: 10,
        max_listed_entries: 3,
        max_entries: 6,
        max_unpacked_bytes: 200,
        ..Limits::default()
    };
    let fixture = Fixture::with(limits);
    fixture.create("one");
    let store = &fixture.store;
    let error = store.write("one", "f", &[0; 11]).expect_err("written");
    assert_eq!(error.code(), ErrorCode::PayloadTooLarge);
    fixture.put("one/big", [0; 11]);
    let error = store.read_bytes("one", "big").expect_err("read");
    assert!(matches!(
        error,
        SkillError::TooLarge {
            what: Oversize::FileBytes,
            ..
        }
    ));
    for name in ["a", "b", "c", "d"] {
        store.write("one", name, b"x").expect("written");
    }
    let listing = store.list_files("one", ".", true, 1000).expect("listed");
    assert_eq!(listing.entries.len(), 3);
    assert!(listing.truncated);
    store.export_zip("one").expect("exported");
    store.write("one", "e", b"x").expect("written");
    let error = store.export_zip("one").expect_err("exported");
    assert!(matches!(
        error,
        SkillError::TooLarge {
            what: Oversize::Entries,
            ..
        }
    ));
    let source = fixture.put_outside("src/SKILL.md", skill_md("src"));
    fixture.put_outside("src/big", [0; 11]);
    let new = NewSkill {
        name: "x".to_owned(),
        package_root: source.parent().map(PathBuf::from),
        ..NewSkill::default()
    };
    let error = store.create(&new).expect_err("created");
    assert_eq!(error.code(), ErrorCode::PayloadTooLarge);
    assert!(!fixture.root().join("x").exists());
}

#[test]
fn violated_rules_are_reported_as_warnings() {
    let fixture = Fixture::new();
    let check = |directory: &str, content: &str| -> Vec<String> {
        let path = fixture.put_outside(&format!("{directory}/SKILL.md"), content);
        let dir = path.parent().expect("parent");
        let warnings = fixture.store.validate(dir).expect("validated");
        warnings
            .iter()
            .map(|warning| warning.code.clone())
            .collect()
    };
    let fine = "---\nname: fine-1\ndescription: d\nlicense: MIT\nmetadata: {a: b}\n\
        allowed-tools: Bash Read\ncompatibility: any\n---\nx\n";
    assert!(check("fine-1", fine).is_empty());
    assert_eq!(
        check("none", "text"),
        [
            "front_matter_missing",
            "name_missing",
            "description_missing"
        ]
    );
    for name in ["Upper", "-a", "a-", "a--b", "a_b"] {
        let content = format!("---\nname: {name}\ndescription: d\n---\n");
        assert_eq!(check(name, &content), ["name_characters"], "{name}");
    }
    assert_eq!(
        check("dir", "---\nname: other\ndescription: d\n---\n"),
        ["name_is_not_directory"]
    );
    let long = format!("---\nname: l\ndescription: {}\n---\n", "d".repeat(1025));
    assert_eq!(check("l", &long), ["description_length"]);
    let odd = "---\nname: m\ndescription: d\nmetadata: {a: 1}\nallowed-tools: [a]\nmore: x\n\
        compatibility: ''\n---\n";
    assert_eq!(
        check("m", odd),
        [
            "compatibility_length",
            "metadata_shape",
            "allowed_tools_shape",
            "unknown_field"
        ]
    );
    let body = format!("---\nname: b\ndescription: d\n---\n{}", "x\n".repeat(501));
    assert_eq!(check("b", &body), ["body_length"]);
    let mark = check("bom", "\u{feff}---\nname: bom\n---\n");
    assert_eq!(mark[0], "byte_order_mark");
    std::os::unix::fs::symlink("/etc", fixture.outside().join("fine-1/out")).expect("link");
    let warnings = fixture
        .store
        .validate(&fixture.outside().join("fine-1"))
        .expect("validated");
    assert_eq!(
        warnings,
        [SkillWarning {
            code: "not_taken".to_owned(),
            message: "`out` is not a file, a directory or a link inside the package".to_owned(),
        }]
    );
    let error = fixture
        .store
        .validate(&fixture.outside())
        .expect_err("validated");
    assert!(matches!(error, SkillError::NoEntryFile { .. }), "{error:?}");
}

#[test]
fn limits_are_strict_configuration() {
    let limits: Limits =
        toml::from_str("max_zip_bytes = 5\nimport_roots = [\"/srv\"]").expect("read");
    assert_eq!(limits.max_zip_bytes, 5);
    assert_eq!(limits.max_ratio, Limits::default().max_ratio);
    assert!(toml::from_str::<Limits>("max_zip_byte = 5").is_err());
}
