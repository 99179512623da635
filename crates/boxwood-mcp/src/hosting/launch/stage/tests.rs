//! Copies of real directories.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("there is room");
        fs::create_dir(directory.path().join("from")).expect("it is ours");
        Self { directory }
    }

    fn from(&self) -> PathBuf {
        self.directory.path().join("from")
    }

    fn to(&self) -> PathBuf {
        self.directory.path().join("work/copy")
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.from().join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("it is ours");
        fs::write(path, text).expect("it is ours");
    }

    fn staging(&self, contents: Contents, links: &[(&str, &str)]) -> Staging {
        Staging {
            from: self.from(),
            into: String::new(),
            contents,
            links: links
                .iter()
                .map(|(place, says)| (place.into(), (*says).to_owned()))
                .collect(),
        }
    }

    fn stage(&self, contents: Contents, links: &[(&str, &str)]) -> Result<(), LaunchError> {
        // As it comes from whoever judged it: a handle that cannot be read itself.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let from = rustix::fs::open(self.from(), flags, Mode::empty()).expect("it is there");
        let parts = [(self.staging(contents, links), from)];
        stage(&parts, &self.to(), None, &AtomicBool::new(false)).map(|_| ())
    }

    /// As it would be for a box of somebody who has nothing of it, in a mount of its own.
    fn copied_through(&self, view: View) -> usize {
        let staging = self.staging(Contents::Data, &[]);
        fs::create_dir_all(self.to()).expect("it is ours");
        let target = File::open(self.to()).expect("it is there");
        let source = File::open(self.from()).expect("it is there");
        let mut limits = Limits {
            files: 100,
            bytes: 100,
            left_out: 0,
            min_free: None,
            stop: &AtomicBool::new(false),
        };
        let mut copy = Copy {
            staging: &staging,
            limits: &mut limits,
            view,
            at: PathBuf::new(),
        };
        copy.directory(source.as_fd(), target.as_fd(), 0)
            .expect("copied");
        limits.left_out
    }

    fn set(&self, name: &str, mode: u32) {
        let rights = fs::Permissions::from_mode(mode);
        fs::set_permissions(self.from().join(name), rights).expect("it is ours");
    }

    fn limited(&self, files: usize, bytes: u64) -> Result<(), LaunchError> {
        let from = File::open(self.from()).expect("it is there");
        let staging = self.staging(Contents::Project, &[]);
        make(
            &staging,
            from.as_fd(),
            &self.to(),
            &mut Limits {
                files,
                bytes,
                left_out: 0,
                min_free: None,
                stop: &AtomicBool::new(false),
            },
        )
    }
}

#[test]
fn files_come_with_rights_and_times_and_an_older_copy_goes() {
    let place = Place::new();
    place.write("src/server.py", "print()");
    place.write("run", "#!/bin/sh\n");
    let run = place.from().join("run");
    fs::set_permissions(&run, fs::Permissions::from_mode(0o4755)).expect("it is ours");
    fs::set_permissions(
        place.from().join("src/server.py"),
        fs::Permissions::from_mode(0o440),
    )
    .expect("it is ours");
    fs::create_dir_all(place.to()).expect("it is ours");
    fs::write(place.to().join("old"), "").expect("it is ours");

    place.stage(Contents::Project, &[]).expect("it fits");
    assert!(!place.to().join("old").exists());
    let server = place.to().join("src/server.py");
    assert_eq!(fs::read_to_string(&server).expect("it is there"), "print()");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o7777;
    // No set-user-id, and writable for who owns it.
    assert_eq!(mode(&place.to().join("run")), 0o755);
    assert_eq!(mode(&server), 0o640);
    let time = |path: &Path| fs::metadata(path).expect("it is there").mtime_nsec();
    assert_eq!(time(&place.to().join("run")), time(&run));
}

#[test]
fn links_stay_links_and_are_never_followed() {
    let place = Place::new();
    let secret = place.directory.path().join("secret");
    fs::create_dir(&secret).expect("it is ours");
    fs::write(secret.join("key"), "k").expect("it is ours");
    symlink(&secret, place.from().join("directory")).expect("it is new");
    symlink(secret.join("key"), place.from().join("file")).expect("it is new");
    symlink("nowhere", place.from().join("broken")).expect("it is new");
    symlink(".", place.from().join("loop")).expect("it is new");
    place.stage(Contents::Project, &[]).expect("it fits");
    for (name, says) in [
        ("directory", secret.clone()),
        ("file", secret.join("key")),
        ("broken", "nowhere".into()),
        ("loop", ".".into()),
    ] {
        let link = fs::read_link(place.to().join(name)).expect("it stayed a link");
        assert_eq!(link, says);
    }
}

#[test]
fn history_caches_and_environments_of_a_project_stay_behind() {
    let place = Place::new();
    for name in [
        ".git/HEAD",
        "__pycache__/a.pyc",
        "sub/__pycache__/a.pyc",
        ".pytest_cache/a",
        ".mypy_cache/a",
        ".ruff_cache/a",
        "whatever/pyvenv.cfg",
        "whatever/bin/python",
        "node_modules/zod/index.js",
        ".github/workflow",
        ".env",
    ] {
        place.write(name, "");
    }
    let is_there = |name: &str| place.to().join(name).exists();
    place.stage(Contents::Project, &[]).expect("it fits");
    for gone in [
        ".git",
        "__pycache__",
        "sub/__pycache__",
        ".pytest_cache",
        "whatever",
    ] {
        assert!(!is_there(gone), "{gone}");
    }
    for kept in [
        "node_modules/zod/index.js",
        ".github/workflow",
        ".env",
        "sub",
    ] {
        assert!(is_there(kept), "{kept}");
    }
    place.stage(Contents::Data, &[]).expect("it fits");
    assert!(is_there(".git/HEAD"));
    assert!(is_there("whatever/bin/python"));
    assert!(!is_there("__pycache__"));
}

#[test]
fn what_is_too_large_is_refused_and_nothing_is_left() {
    let place = Place::new();
    for name in ["a", "b", "c"] {
        place.write(name, "1234");
    }
    place.limited(3, 12).expect("it just fits");
    fs::remove_dir_all(place.to()).expect("it is there");
    for (files, bytes) in [(2, 12), (3, 11)] {
        let error = place.limited(files, bytes).expect_err("one too many");
        assert!(matches!(error, LaunchError::TooMuch { .. }), "{error}");
        assert!(error.hint().is_some());
        fs::remove_dir_all(place.to()).expect("it is there");
    }
    // A directory in a directory in a directory.
    let mut deep = place.from();
    for _ in 0..=DEEPEST {
        deep.push("d");
    }
    fs::create_dir_all(deep).expect("it is ours");
    let error = place.stage(Contents::Project, &[]).expect_err("too deep");
    assert!(matches!(error, LaunchError::TooMuch { .. }), "{error}");
    assert!(!place.to().exists());
}

#[test]
fn pipes_and_sockets_are_passed_over() {
    let place = Place::new();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.from().join("pipe"),
        FileType::Fifo,
        Mode::RWXU,
        0,
    )
    .expect("pipes need no rights");
    let _socket = std::os::unix::net::UnixListener::bind(place.from().join("socket"))
        .expect("the name is short");
    place.write("file", "");
    place.stage(Contents::Data, &[]).expect("nobody waits");
    let names: Vec<_> = fs::read_dir(place.to())
        .expect("it is there")
        .map(|entry| entry.expect("it is there").file_name())
        .collect();
    assert_eq!(names, ["file"]);
}

#[test]
fn a_link_of_ours_is_put_into_the_copy_and_never_through_one_of_theirs() {
    let place = Place::new();
    place.write("sub/package.json", "{}");
    let links = [("sub/node_modules", "/opt/mcp/node_modules")];
    place.stage(Contents::Project, &links).expect("it fits");
    assert_eq!(
        fs::read_link(place.to().join("sub/node_modules")).expect("it is a link"),
        Path::new("/opt/mcp/node_modules")
    );
    // What the project has itself stays.
    place.write("sub/node_modules/zod/index.js", "");
    place.stage(Contents::Project, &links).expect("it fits");
    assert!(place.to().join("sub/node_modules/zod/index.js").exists());

    let outside = place.directory.path().join("outside");
    fs::create_dir(&outside).expect("it is ours");
    fs::remove_dir_all(place.from().join("sub")).expect("it is ours");
    symlink(&outside, place.from().join("sub")).expect("it is new");
    place
        .stage(Contents::Project, &links)
        .expect_err("a link on the way");
    assert!(!outside.join("node_modules").exists());
    let upwards = [("../node_modules", "/x")];
    place
        .stage(Contents::Project, &upwards)
        .expect_err("it climbs");
}

#[test]
fn several_directories_make_one_copy() {
    let (one, other) = (Place::new(), Place::new());
    one.write("a", "1");
    other.write("b", "2");
    let part = |place: &Place, into: &str| {
        let staging = Staging {
            into: into.to_owned(),
            ..place.staging(Contents::Data, &[])
        };
        (staging, File::open(place.from()).expect("it is there"))
    };
    let to = one.to();
    let go_on = AtomicBool::new(false);
    stage(
        &[part(&one, "first"), part(&other, "second")],
        &to,
        None,
        &go_on,
    )
    .expect("it fits");
    assert_eq!(
        fs::read_to_string(to.join("first/a")).expect("it is there"),
        "1"
    );
    assert_eq!(
        fs::read_to_string(to.join("second/b")).expect("it is there"),
        "2"
    );
    // When one fails nothing of the others is left.
    let mut deep = other.from();
    for _ in 0..=DEEPEST {
        deep.push("d");
    }
    fs::create_dir_all(deep).expect("it is ours");
    stage(
        &[part(&one, "first"), part(&other, "second")],
        &to,
        None,
        &go_on,
    )
    .expect_err("too deep");
    assert!(!to.exists());
}

#[test]
fn a_copy_that_nobody_waits_for_ends_and_leaves_nothing() {
    let place = Place::new();
    place.write("a", "1");
    let from = File::open(place.from()).expect("it is there");
    let parts = [(place.staging(Contents::Data, &[]), from)];
    stage(&parts, &place.to(), None, &AtomicBool::new(true)).expect_err("nobody waits");
    assert!(!place.to().exists());
}

#[test]
fn a_copy_that_is_removed_while_it_is_made_is_no_success() {
    let place = Place::new();
    place.write("a", "1");
    place.write("sub/b", "1");
    fs::create_dir_all(place.to()).expect("it is ours");
    let target = File::open(place.to()).expect("it is there");
    fs::remove_dir(place.to()).expect("it is empty");
    let staging = place.staging(Contents::Data, &[]);
    let view = View::of(target.as_fd()).expect("it is there");
    let mut copy = Copy {
        staging: &staging,
        limits: &mut Limits {
            files: 10,
            bytes: 10,
            left_out: 0,
            min_free: None,
            stop: &AtomicBool::new(false),
        },
        view,
        at: PathBuf::new(),
    };
    let source = File::open(place.from()).expect("it is there");
    copy.directory(source.as_fd(), target.as_fd(), 0)
        .expect_err("there is nothing to copy into");
}

#[test]
fn what_a_box_could_not_read_in_a_mount_is_not_copied() {
    let place = Place::new();
    for (name, mode) in [("open", 0o644), ("group", 0o640), ("own", 0o600)] {
        place.write(name, "1");
        place.set(name, mode);
        place.write(&format!("open-directory/{name}"), "1");
        place.set(&format!("open-directory/{name}"), mode);
    }
    for (name, mode) in [("listed", 0o744), ("passable", 0o711), ("closed", 0o700)] {
        place.write(&format!("{name}/file"), "1");
        place.set(name, mode);
    }
    place.set("open-directory", 0o755);
    let is_there = |name: &str| place.to().join(name).exists();
    let source = File::open(place.from()).expect("it is there");
    let view = View::of(source.as_fd()).expect("it is there");
    let owner = source.metadata().expect("it is there");

    let stranger = view.for_owner(owner.uid() + 1, owner.gid() + 1);
    assert_eq!(place.copied_through(stranger), 7);
    for name in ["open", "open-directory/open"] {
        assert!(is_there(name), "{name}");
    }
    for name in ["group", "own", "open-directory/group", "open-directory/own"] {
        assert!(!is_there(name), "{name}");
    }
    for name in ["listed", "passable", "closed"] {
        assert!(!is_there(name), "{name}");
    }
    fs::remove_dir_all(place.to()).expect("it is there");
    // In the group of the directory.
    let member = view.for_owner(owner.uid() + 1, owner.gid());
    assert_eq!(place.copied_through(member), 5);
    assert!(is_there("group") && !is_there("own"));
    fs::remove_dir_all(place.to()).expect("it is there");
    let itself = view.for_owner(owner.uid(), owner.gid());
    assert_eq!(place.copied_through(itself), 0);
    assert!(is_there("closed/file"));
}

#[test]
fn what_is_mounted_below_the_directory_is_not_part_of_it() {
    let root = File::open("/").expect("it is there");
    let view = View::of(root.as_fd()).expect("it is there");
    assert!(view.reaches(&view::facts(&root).expect("it is there")));
    // On every Linux something is mounted there.
    let mounted = view::facts_at(root.as_fd(), c"proc").expect("it is there");
    assert!(!view.reaches(&mounted));

    let place = Place::new();
    place.write("file", "1");
    place.write("directory/file", "1");
    assert_eq!(place.copied_through(view_of_proc()), 2);
    assert_eq!(fs::read_dir(place.to()).expect("listed").count(), 0);
}

fn view_of_proc() -> View {
    let directory = File::open("/proc").expect("it is there");
    View::of(directory.as_fd()).expect("it is there")
}

#[test]
fn a_copy_leaves_the_disk_its_room() {
    let place = Place::new();
    place.write("a", "1");
    let staged = |min_free| {
        let from = File::open(place.from()).expect("it is there");
        let parts = [(place.staging(Contents::Data, &[]), from)];
        stage(&parts, &place.to(), Some(min_free), &AtomicBool::new(false))
    };
    staged(0).expect("there is room for so little");
    let error = staged(u64::MAX).expect_err("no disk has so much");
    assert!(matches!(error, LaunchError::NoRoom { .. }), "{error}");
    assert!(error.hint().is_some() && !error.is_final());
    assert!(!place.to().exists());
}
