//! Links, special files, and a neighbour who plants them while the store works.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use boxwood_skills::{Limits, NewSkill, SkillError};

use crate::fixture::{Fixture, skill_md};

fn with_skill() -> Fixture {
    let fixture = Fixture::new();
    fixture.put("one/SKILL.md", skill_md("one"));
    fixture.put("one/inner/file.txt", "inner");
    fixture.put_outside("secret.txt", "secret");
    fixture.put_outside("dir/deep.txt", "deep");
    fixture
}

fn link(fixture: &Fixture, target: impl AsRef<Path>, at: &str) {
    symlink(target, fixture.root().join(at)).expect("linked");
}

#[test]
fn a_link_that_leads_out_is_not_followed() {
    let fixture = with_skill();
    let around = fixture.around();
    link(
        &fixture,
        fixture.outside().join("secret.txt"),
        "one/absolute",
    );
    link(&fixture, "../../outside/secret.txt", "one/relative");
    link(&fixture, fixture.outside(), "one/dir");
    link(&fixture, "/proc/self/root", "one/magic");
    let store = &fixture.store;
    for path in [
        "absolute",
        "relative",
        "dir/secret.txt",
        "magic/etc/hostname",
    ] {
        let error = store.read_bytes("one", path).expect_err("read");
        assert!(
            matches!(error, SkillError::PathEscapes),
            "{path}: {error:?}"
        );
        let error = store.write("one", path, b"x").expect_err("written");
        assert!(
            matches!(error, SkillError::PathEscapes),
            "{path}: {error:?}"
        );
    }
    let error = store
        .list_files("one", "dir", true, 200)
        .expect_err("listed");
    assert!(matches!(error, SkillError::PathEscapes), "{error:?}");
    let error = store.write("one", "dir/new/x", b"x").expect_err("written");
    assert!(matches!(error, SkillError::PathEscapes), "{error:?}");
    let error = store
        .delete_file("one", "dir/secret.txt")
        .expect_err("deleted");
    assert!(matches!(error, SkillError::PathEscapes), "{error:?}");
    let error = store
        .move_file("one", "dir/secret.txt", "mine")
        .expect_err("moved");
    assert!(matches!(error, SkillError::PathEscapes), "{error:?}");
    let error = store
        .move_file("one", "inner/file.txt", "dir/x")
        .expect_err("moved");
    assert!(matches!(error, SkillError::PathEscapes), "{error:?}");
    // Listed as the link it is: neither its size nor its kind tell about the other side.
    let listing = store.list_files("one", ".", true, 200).expect("listed");
    let dir = listing
        .entries
        .iter()
        .find(|item| item.name == "dir")
        .expect("there");
    assert!(dir.is_symlink && !dir.is_dir);
    // The link itself can go; what it points at stays.
    store.delete_file("one", "dir").expect("deleted");
    store.delete("one").expect("deleted");
    assert_eq!(fixture.around(), around);
}

#[test]
fn a_link_that_stays_inside_is_followed() {
    let fixture = with_skill();
    link(&fixture, "inner/file.txt", "one/alias");
    link(&fixture, "../inner", "one/inner/self");
    link(&fixture, "nowhere", "one/dangling");
    let store = &fixture.store;
    let read = |path: &str| store.read_text("one", path).map(|file| file.content);
    assert_eq!(read("alias").expect("read"), "inner");
    assert_eq!(read("inner/self/self/file.txt").expect("read"), "inner");
    assert!(matches!(
        read("dangling"),
        Err(SkillError::FileNotFound { .. })
    ));
    store.write("one", "alias", b"changed").expect("written");
    assert_eq!(fixture.text("one/inner/file.txt"), "changed");
    assert!(fixture.root().join("one/alias").is_symlink());
    store
        .write("one", "inner/self/new.txt", b"new")
        .expect("written");
    assert_eq!(fixture.text("one/inner/new.txt"), "new");
    store.write("one", "dangling", b"now").expect("written");
    assert_eq!(fixture.text("one/dangling"), "now");
}

#[test]
fn a_file_with_two_names_is_not_written_through_a_link() {
    let fixture = with_skill();
    let secret = fixture.outside().join("secret.txt");
    let before = fs::read(&secret).expect("read");
    fs::hard_link(&secret, fixture.root().join("one/other-name")).expect("linked");
    link(&fixture, "other-name", "one/link");
    let error = fixture
        .store
        .write("one", "link", b"x")
        .expect_err("written");
    assert!(matches!(error, SkillError::FileNotRegular(_)), "{error:?}");
    assert_eq!(fs::read(&secret).expect("read"), before);
}

#[test]
fn an_entry_file_that_leads_out_is_no_skill() {
    let fixture = with_skill();
    fs::create_dir(fixture.root().join("two")).expect("directory");
    link(
        &fixture,
        fixture.outside().join("secret.txt"),
        "two/SKILL.md",
    );
    assert_eq!(fixture.names(), ["one"]);
    let problems = fixture.store.problems().expect("problems");
    assert_eq!(problems.len(), 1);
    assert!(problems[0].path.ends_with("two/SKILL.md"), "{problems:?}");
}

#[test]
fn a_linked_directory_is_not_searched() {
    let fixture = with_skill();
    fixture.put_outside("foreign/SKILL.md", skill_md("foreign"));
    link(&fixture, fixture.outside().join("foreign"), "foreign");
    link(&fixture, "one", "again");
    assert_eq!(fixture.names(), ["one"]);
}

#[test]
fn opening_a_fifo_does_not_block() {
    let fixture = with_skill();
    let fifo = |path: &str| {
        let path = fixture.root().join(path);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o644),
            0,
        )
        .expect("fifo");
    };
    fs::create_dir(fixture.root().join("two")).expect("directory");
    fifo("two/SKILL.md");
    fifo("one/pipe");
    let started = Instant::now();
    assert_eq!(fixture.names(), ["one"]);
    let error = fixture.store.read_bytes("one", "pipe").expect_err("read");
    assert!(
        matches!(error, SkillError::FileNotFound { .. }),
        "{error:?}"
    );
    fixture
        .store
        .write("one", "pipe", b"a file now")
        .expect("written");
    assert_eq!(fixture.text("one/pipe"), "a file now");
    fifo("one/other");
    fixture.store.export_zip("one").expect("exported");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn an_import_copies_only_files_and_inner_links() {
    let fixture = Fixture::new();
    fixture.put_outside("src/SKILL.md", skill_md("src"));
    fixture.put_outside("src/a/b.txt", "b");
    fixture.put_outside("secret", "s");
    let src = fixture.outside().join("src");
    symlink("a/b.txt", src.join("inner")).expect("link");
    symlink("../b", src.join("a/up")).expect("link");
    symlink("../secret", src.join("outer")).expect("link");
    symlink("/etc/passwd", src.join("absolute")).expect("link");
    symlink("a/../..", src.join("winding")).expect("link");
    let around = fixture.around();
    let skill = fixture
        .store
        .create(&NewSkill {
            name: "taken".to_owned(),
            package_root: Some(src),
            ..NewSkill::default()
        })
        .expect("created");
    let mut left: Vec<&str> = skill
        .warnings
        .iter()
        .filter(|warning| warning.code == "not_taken")
        .filter_map(|warning| warning.message.split('`').nth(1))
        .collect();
    left.sort_unstable();
    assert_eq!(left, ["absolute", "outer", "winding"]);
    let names: Vec<String> = fs::read_dir(fixture.root().join("taken"))
        .expect("there")
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!(fixture.text("taken/inner"), "b");
    assert_eq!(fixture.around(), around);
}

#[test]
fn a_store_is_not_copied_into_itself() {
    let fixture = Fixture::new();
    let parent = fixture.root().parent().expect("parent").to_owned();
    fs::write(parent.join("SKILL.md"), skill_md("all")).expect("written");
    let new = NewSkill {
        name: "all".to_owned(),
        package_root: Some(parent),
        ..NewSkill::default()
    };
    let error = fixture.store.create(&new).expect_err("created");
    assert!(
        matches!(error, SkillError::ImportNotAllowed { .. }),
        "{error:?}"
    );
    assert!(fixture.inside().is_empty());
}

#[test]
fn a_very_deep_tree_can_be_deleted() {
    let fixture = with_skill();
    let top = rustix::fs::open(
        fixture.root().join("one"),
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY,
        rustix::fs::Mode::empty(),
    )
    .expect("open");
    let mut dir = top;
    // More than a path can name.
    for _ in 0..2500 {
        let mode = rustix::fs::Mode::from_raw_mode(0o755);
        rustix::fs::mkdirat(&dir, "d", mode).expect("made");
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
        dir = rustix::fs::openat(&dir, "d", flags, rustix::fs::Mode::empty()).expect("open");
    }
    fixture.store.delete("one").expect("deleted");
    assert!(fixture.inside().is_empty());
}

#[test]
fn directories_without_rights_can_be_deleted() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = with_skill();
    fixture.put("one/closed/in/file", "x");
    for path in ["one/closed/in", "one/closed"] {
        let path = fixture.root().join(path);
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).expect("mode");
    }
    fixture.store.delete("one").expect("deleted");
    assert!(fixture.inside().is_empty());
}

/// A box with the package mounted for writing swaps a directory for a link and back as fast as
/// it can; whatever the store does meanwhile, it does inside.
#[test]
fn swapping_links_during_a_call_never_leads_out() {
    let fixture = with_skill();
    fixture.put_outside("inner/file.txt", "outside");
    fixture.put_outside("inner/keep.txt", "keep");
    let around = fixture.around();
    let stop = AtomicBool::new(false);
    let package = fixture.root().join("one");
    let outside = fixture.outside().join("inner");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (inner, aside) = (package.join("inner"), package.join("aside"));
            let end = Instant::now() + Duration::from_secs(10);
            while !stop.load(Ordering::Relaxed) && Instant::now() < end {
                let _ = fs::rename(&inner, &aside);
                let _ = symlink(&outside, &inner);
                let _ = fs::remove_file(&inner);
                let _ = fs::rename(&aside, &inner);
            }
        });
        let store = &fixture.store;
        let end = Instant::now() + Duration::from_secs(3);
        let mut rounds = 0;
        while Instant::now() < end {
            if let Ok(file) = store.read_bytes("one", "inner/file.txt") {
                assert_ne!(file.content, b"outside");
            }
            let _ = store.write("one", "inner/file.txt", b"written");
            let _ = store.write("one", "inner/new/dir/x", b"x");
            let _ = store.delete_file("one", "inner/keep.txt");
            let _ = store.delete_file("one", "inner/new");
            let _ = store.move_file("one", "inner/file.txt", "inner/moved.txt");
            let _ = store.move_file("one", "inner/moved.txt", "inner/file.txt");
            if let Ok(listing) = store.list_files("one", "inner", true, 100) {
                assert!(listing.entries.iter().all(|item| item.name != "keep.txt"));
            }
            let exported = store.export_zip("one").expect("exported");
            assert!(memchr::memmem::find(&exported, b"keep.txt").is_none());
            rounds += 1;
        }
        stop.store(true, Ordering::Relaxed);
        assert!(rounds > 10);
    });
    fixture.store.delete("one").expect("deleted");
    assert_eq!(fixture.around(), around);
}

/// The same long file a thousand times costs a box nothing, and the store keeps what it reads.
#[test]
fn one_package_cannot_fill_the_memory() {
    let fixture = Fixture::new();
    fixture.put("neighbour/SKILL.md", skill_md("neighbour"));
    let long = fixture.put("many/000/SKILL.md", "x".repeat(1_000_000));
    for number in 1..200 {
        let directory = fixture.root().join(format!("many/{number:03}"));
        fs::create_dir(&directory).expect("directory");
        fs::hard_link(&long, directory.join("SKILL.md")).expect("linked");
    }
    for number in 0..1000 {
        fixture.put(&format!("short/{number:04}/SKILL.md"), "y");
    }
    let skills = fixture.store.list().expect("listed");
    let indexed_bytes: usize = skills.iter().map(|skill| skill.instructions.len()).sum();
    assert!(indexed_bytes < 32 << 20, "{indexed_bytes} bytes are kept");
    assert!(skills.len() < 700, "{} skills", skills.len());
    assert!(fixture.store.get("neighbour").expect("looked").is_some());
    assert!(fixture.store.get("000").expect("looked").is_some());
    let problems = fixture.store.problems().expect("listed");
    assert_eq!(problems.len(), 2, "{problems:?}");
}

#[test]
fn directories_above_the_limit_are_reported() {
    let fixture = Fixture::with(Limits {
        max_searched_directories: 5,
        ..Limits::default()
    });
    fixture.put("one/SKILL.md", skill_md("one"));
    for parent in ["a", "b"] {
        for child in ["x", "y"] {
            fixture.put(&format!("many/{parent}/{child}/SKILL.md"), skill_md("many"));
        }
    }
    assert!(fixture.store.get("one").expect("read").is_some());
    let problems = fixture.store.problems().expect("listed");
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].path.ends_with("many/b/x"), "{problems:?}");
}

/// A box that has the directory above the store puts a link in the store's place.
#[test]
fn a_store_replaced_by_a_link_is_not_opened() {
    let fixture = with_skill();
    fixture.put_outside("victim/file", "precious");
    fs::rename(fixture.root(), fixture.outside().join("moved")).expect("moved");
    symlink(fixture.outside(), fixture.root()).expect("linked");
    let store = &fixture.store;
    let new = NewSkill {
        name: "victim".to_owned(),
        ..NewSkill::default()
    };
    let error = store.create(&new).expect_err("created");
    assert!(matches!(error, SkillError::Io { .. }), "{error:?}");
    assert!(store.list().is_err());
    assert!(store.delete("one").is_err());
    assert!(!fixture.outside().join("victim/SKILL.md").exists());
}
