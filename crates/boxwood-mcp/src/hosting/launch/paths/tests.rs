//! Rewriting, after the acceptance list of the system this one follows.

use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;

const MOUNT: &str = "/workspace";

fn rewrite(host: &str) -> Rewrite {
    Rewrite::new(Path::new(host), MOUNT)
}

/// A project with an environment whose interpreter leads out of it, as nearly all do.
fn project() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("there is room");
    for venv in [".venv", "sub/venv", "own-name"] {
        let programs = directory.path().join(venv).join("bin");
        fs::create_dir_all(&programs).expect("it is ours");
        symlink("/bin/sh", programs.join("python3")).expect("it is new");
        fs::write(programs.join("tool"), "").expect("it is ours");
    }
    fs::write(directory.path().join("own-name/pyvenv.cfg"), "").expect("it is ours");
    fs::write(directory.path().join("server.py"), "").expect("it is ours");
    directory
}

#[test]
fn only_what_lies_in_the_directory_is_renamed() {
    let project = rewrite("/no/such/project");
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
        // Nothing that could be a path of the host.
        ("", ""),
        ("server.py", "server.py"),
        ("./server.py", "./server.py"),
        ("no/such/project/x", "no/such/project/x"),
        ("file:///no/such/project/x", "file:///no/such/project/x"),
        // Options that hold one.
        ("--db=/no/such/project/a.db", "--db=/workspace/a.db"),
        ("--db=/elsewhere/a.db", "--db=/elsewhere/a.db"),
        ("KEY=/no/such/project", "KEY=/no/such/project"),
        ("--a=b=/no/such/project", "--a=b=/no/such/project"),
    ] {
        assert_eq!(project.word(word), expected);
    }
}

#[test]
fn several_directories_keep_their_names_side_by_side() {
    let hosts = [
        "/no/such/Desktop",
        "/no/such/other/Desktop",
        "/no/such/Music",
    ];
    let hosts: Vec<PathBuf> = hosts.iter().map(PathBuf::from).collect();
    let rewrite = Rewrite::several(&hosts, MOUNT);
    for (word, expected) in [
        ("/no/such/Desktop", "/workspace/Desktop"),
        ("/no/such/other/Desktop/a", "/workspace/Desktop-2/a"),
        ("/no/such/Music/a", "/workspace/Music/a"),
        ("/no/such/Musical", "/no/such/Musical"),
        ("/no/such", "/no/such"),
    ] {
        assert_eq!(rewrite.word(word), expected);
    }
    assert_eq!(rewrite.host(), None);
}

#[test]
fn a_path_that_climbs_is_followed_before_it_is_judged() {
    let project = project();
    let rewrite = Rewrite::new(project.path(), MOUNT);
    let inside = project.path().join("sub/../server.py");
    let outside = project.path().join("../elsewhere.py");
    let strange = project.path().join("not-there/../../elsewhere.py");
    assert_eq!(
        rewrite.path(&inside).as_deref(),
        Some("/workspace/server.py")
    );
    assert_eq!(rewrite.path(&outside), None);
    assert_eq!(rewrite.path(&strange), None);
}

#[test]
fn a_link_to_the_directory_is_the_directory() {
    let project = project();
    let elsewhere = tempfile::tempdir().expect("there is room");
    let link = elsewhere.path().join("link");
    symlink(project.path(), &link).expect("it is new");
    let by_link = Rewrite::new(&link, MOUNT);
    let by_name = Rewrite::new(project.path(), MOUNT);
    for rewrite in [by_link, by_name] {
        for start in [&link, project.path()] {
            assert_eq!(
                rewrite.path(&start.join("server.py")).as_deref(),
                Some("/workspace/server.py")
            );
        }
    }
}

#[test]
fn a_link_in_the_directory_keeps_its_name() {
    let project = project();
    symlink("/bin/sh", project.path().join("link")).expect("it is new");
    let rewrite = Rewrite::new(project.path(), MOUNT);
    assert_eq!(
        rewrite.path(&project.path().join("link")).as_deref(),
        Some("/workspace/link")
    );
}

#[test]
fn an_interpreter_of_an_environment_is_python_even_when_it_is_a_link() {
    let project = project();
    let rewrite = Rewrite::new(project.path(), MOUNT);
    let command = |name: &str| {
        let path = project.path().join(name);
        rewrite.command(path.to_str().expect("it is text"))
    };
    assert_eq!(command(".venv/bin/python3"), "python");
    assert_eq!(command("sub/venv/bin/python3"), "python");
    assert_eq!(command("own-name/bin/python3"), "python");
    assert_eq!(command(".venv/bin/tool"), "/workspace/.venv/bin/tool");
    assert_eq!(command("server.py"), "/workspace/server.py");
    assert_eq!(
        rewrite.command("/elsewhere/.venv/bin/python"),
        "/elsewhere/.venv/bin/python"
    );
    assert_eq!(rewrite.command("python3"), "python3");
}

#[test]
fn an_environment_is_unwrapped_to_what_it_belongs_to() {
    for (path, expected) in [
        ("/p/.venv/bin/python", "/p"),
        ("/p/venv/bin", "/p"),
        ("/p/env/Scripts/python.exe", "/p"),
        ("/p/.env/bin/python3.12", "/p"),
        ("/p/sub/.venv/bin/python", "/p/sub"),
        ("/.venv/bin/python", "/"),
        // The rightmost wins.
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
    fn a_word_changes_only_when_it_lies_below_the_directory(
        host in "/[a-z]{1,6}(/[a-z]{1,6}){0,3}",
        word in "(/?[a-z.]{1,6}){0,6}",
    ) {
        // Nothing of that name exists, so no link can interfere.
        let host = format!("/no-such-place{host}");
        let rewrite = rewrite(&host);
        let inside = format!("{host}/{}", word.trim_start_matches('/'));
        let climbs = Path::new(&inside).components().any(|part| part == Component::ParentDir);
        prop_assert_eq!(rewrite.path(Path::new(&word)), None);
        prop_assert_eq!(rewrite.path(Path::new(&format!("{host}{}", "x"))), None);
        if !climbs {
            let renamed = rewrite.path(Path::new(&inside)).expect("it lies inside");
            prop_assert!(Path::new(&renamed).starts_with(MOUNT));
            // Once renamed it is no path of the host any more.
            prop_assert_eq!(rewrite.word(&renamed), renamed);
        }
    }

    #[test]
    fn whatever_is_written_never_leaves_the_mount(word in "\\PC{0,40}") {
        let rewrite = rewrite("/no-such-place/p");
        if let Some(renamed) = rewrite.path(Path::new(&format!("/no-such-place/p/{word}"))) {
            prop_assert!(Path::new(&renamed).starts_with(MOUNT));
            prop_assert!(!Path::new(&renamed).components().any(|part| part == Component::ParentDir));
        }
    }
}
