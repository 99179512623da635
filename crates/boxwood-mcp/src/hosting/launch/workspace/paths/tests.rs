//! Path mapping, including the cases of LangBot Box.

use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;

fn path_map(host: impl Into<PathBuf>) -> PathMap {
    PathMap::new(&[host.into()])
}

/// A project with a virtual environment whose interpreter is a link out of it.
fn project() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for venv in [".venv", "sub/venv", "own-name"] {
        let programs = directory.path().join(venv).join("bin");
        fs::create_dir_all(&programs).expect("writable");
        symlink("/bin/sh", programs.join("python3")).expect("a new link");
        fs::write(programs.join("tool"), "").expect("writable");
    }
    fs::write(directory.path().join("own-name/pyvenv.cfg"), "").expect("writable");
    fs::write(directory.path().join("server.py"), "").expect("writable");
    directory
}

#[test]
fn only_paths_in_the_directory_are_mapped() {
    let project = path_map("/no/such/project");
    for (word, expected) in [
        // Prefix, exact, nested.
        ("/no/such/project/server.py", "/workspace/server.py"),
        ("/no/such/project", "/workspace"),
        ("/no/such/project/", "/workspace"),
        ("/no/such/project/a/b/c.py", "/workspace/a/b/c.py"),
        // Elsewhere, and a similar prefix.
        ("/no/such/other/server.py", "/no/such/other/server.py"),
        (
            "/no/such/project-two/server.py",
            "/no/such/project-two/server.py",
        ),
        ("/no/such/projec", "/no/such/projec"),
        // Not a host path.
        ("", ""),
        ("server.py", "server.py"),
        ("./server.py", "./server.py"),
        ("no/such/project/x", "no/such/project/x"),
        ("file:///no/such/project/x", "file:///no/such/project/x"),
        // Options with a path.
        ("--db=/no/such/project/a.db", "--db=/workspace/a.db"),
        ("--db=/elsewhere/a.db", "--db=/elsewhere/a.db"),
        ("KEY=/no/such/project", "KEY=/no/such/project"),
        ("--a=b=/no/such/project", "--a=b=/no/such/project"),
    ] {
        assert_eq!(project.word(word), expected);
    }
}

#[test]
fn several_directories_keep_distinct_names() {
    let hosts = [
        "/no/such/Desktop",
        "/no/such/other/Desktop",
        "/no/such/Music",
    ];
    let hosts: Vec<PathBuf> = hosts.iter().map(PathBuf::from).collect();
    let path_map = PathMap::new(&hosts);
    for (word, expected) in [
        ("/no/such/Desktop", "/workspace/Desktop"),
        ("/no/such/other/Desktop/a", "/workspace/Desktop-2/a"),
        ("/no/such/Music/a", "/workspace/Music/a"),
        ("/no/such/Musical", "/no/such/Musical"),
        ("/no/such", "/no/such"),
    ] {
        assert_eq!(path_map.word(word), expected);
    }
    assert_eq!(path_map.workspace(), None);
}

#[test]
fn parent_components_are_resolved_before_mapping() {
    let project = project();
    let path_map = path_map(project.path());
    let inside = project.path().join("sub/../server.py");
    let outside = project.path().join("../elsewhere.py");
    let strange = project.path().join("not-there/../../elsewhere.py");
    assert_eq!(
        path_map.path(&inside).as_deref(),
        Some("/workspace/server.py")
    );
    assert_eq!(path_map.path(&outside), None);
    assert_eq!(path_map.path(&strange), None);
}

#[test]
fn a_link_to_the_directory_is_mapped() {
    let project = project();
    let elsewhere = tempfile::tempdir().expect("a directory");
    let link = elsewhere.path().join("link");
    symlink(project.path(), &link).expect("a new link");
    let by_link = path_map(&link);
    let by_name = path_map(project.path());
    for path_map in [by_link, by_name] {
        for start in [&link, project.path()] {
            assert_eq!(
                path_map.path(&start.join("server.py")).as_deref(),
                Some("/workspace/server.py")
            );
        }
    }
}

#[test]
fn a_link_in_the_directory_keeps_its_name() {
    let project = project();
    symlink("/bin/sh", project.path().join("link")).expect("a new link");
    let path_map = path_map(project.path());
    assert_eq!(
        path_map.path(&project.path().join("link")).as_deref(),
        Some("/workspace/link")
    );
}

#[test]
fn a_linked_interpreter_becomes_python() {
    let project = project();
    let path_map = path_map(project.path());
    let command = |name: &str| {
        let path = project.path().join(name);
        path_map.command(path.to_str().expect("it is text"))
    };
    assert_eq!(command(".venv/bin/python3"), "python");
    assert_eq!(command("sub/venv/bin/python3"), "python");
    assert_eq!(command("own-name/bin/python3"), "python");
    assert_eq!(command(".venv/bin/tool"), "/workspace/.venv/bin/tool");
    assert_eq!(command("server.py"), "/workspace/server.py");
    assert_eq!(
        path_map.command("/elsewhere/.venv/bin/python"),
        "/elsewhere/.venv/bin/python"
    );
    assert_eq!(path_map.command("python3"), "python3");
}

#[test]
fn a_virtual_environment_is_mapped_to_its_parent() {
    for (path, expected) in [
        ("/p/.venv/bin/python", "/p"),
        ("/p/venv/bin", "/p"),
        ("/p/env/Scripts/python.exe", "/p"),
        ("/p/.env/bin/python3.12", "/p"),
        ("/p/sub/.venv/bin/python", "/p/sub"),
        ("/.venv/bin/python", "/"),
        // The rightmost match wins.
        ("/p/.venv/bin/x/venv/bin/python", "/p/.venv/bin/x"),
        ("/p/bin/python", "/p/bin/python"),
        ("/p/environment/bin/python", "/p/environment/bin/python"),
        ("/p/server.py", "/p/server.py"),
    ] {
        assert_eq!(unwrap_venv(Path::new(path)), Path::new(expected));
    }
}

proptest! {
    #[test]
    fn words_outside_the_directory_stay_unchanged(
        host in "/[a-z]{1,6}(/[a-z]{1,6}){0,3}",
        word in "(/?[a-z.]{1,6}){0,6}",
    ) {
        // Does not exist, so that no link interferes.
        let host = format!("/no-such-place{host}");
        let path_map = path_map(host.as_str());
        let inside = format!("{host}/{}", word.trim_start_matches('/'));
        let climbs = Path::new(&inside).components().any(|part| part == Component::ParentDir);
        prop_assert_eq!(path_map.path(Path::new(&word)), None);
        prop_assert_eq!(path_map.path(Path::new(&format!("{host}{}", "x"))), None);
        if !climbs {
            let renamed = path_map.path(Path::new(&inside)).expect("it lies inside");
            prop_assert!(Path::new(&renamed).starts_with(DEFAULT_MOUNT_PATH));
            // A mapped path is not a host path.
            prop_assert_eq!(path_map.word(&renamed), renamed);
        }
    }

    #[test]
    fn mapped_paths_never_leave_the_mount(word in "\\PC{0,40}") {
        let path_map = path_map("/no-such-place/p");
        if let Some(renamed) = path_map.path(Path::new(&format!("/no-such-place/p/{word}"))) {
            prop_assert!(Path::new(&renamed).starts_with(DEFAULT_MOUNT_PATH));
            prop_assert!(!Path::new(&renamed).components().any(|part| part == Component::ParentDir));
        }
    }
}
