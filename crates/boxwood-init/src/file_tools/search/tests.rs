//! Searches real directory trees.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::file_tools::*;

struct Tree(tempfile::TempDir);

impl Tree {
    fn of(files: &[(&str, &str)]) -> Self {
        let tree = Self(tempfile::tempdir().expect("a directory"));
        for (name, text) in files {
            tree.put(name, text.as_bytes());
        }
        tree
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
        fs::write(path, bytes).expect("write");
    }

    fn pipe(&self, name: &str) {
        mknodat(CWD, self.at(name), FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    }

    fn root(&self) -> String {
        self.0.path().to_str().expect("UTF-8").to_owned()
    }

    fn below(&self, path: &str) -> String {
        let root = format!("{}/", self.root());
        path.strip_prefix(&root).expect("a path below").to_owned()
    }

    fn glob_with(&self, pattern: &str, limit: usize, ignored: bool) -> Found {
        let tool = FileTool::Glob {
            pattern: pattern.to_owned(),
            path: self.root(),
            limit,
            ignored,
        };
        match run(soon(tool), &|| true).expect("glob") {
            FileToolResponse::Glob(mut found) => {
                for path in &mut found.paths {
                    *path = self.below(path);
                }
                found
            }
            other => panic!("{other:?}"),
        }
    }

    /// By name.
    fn glob(&self, pattern: &str) -> Vec<String> {
        let mut paths = self.glob_with(pattern, 1000, false).paths;
        paths.sort();
        paths
    }

    fn grep_with(&self, change: impl FnOnce(&mut GrepQuery)) -> Result<Lines, FileToolError> {
        let mut query = GrepQuery {
            pattern: "needle".to_owned(),
            path: self.root(),
            include: None,
            file_type: None,
            ignore_case: false,
            limit: 200,
            ignored: false,
        };
        change(&mut query);
        match run(soon(FileTool::Grep(query)), &|| true)? {
            FileToolResponse::Grep(lines) => Ok(lines),
            other => panic!("{other:?}"),
        }
    }

    /// `file:line:content`, in order.
    fn grep(&self, change: impl FnOnce(&mut GrepQuery)) -> Vec<String> {
        let lines = self.grep_with(change).expect("grep").lines;
        let shown =
            |line: &GrepLine| format!("{}:{}:{}", self.below(&line.file), line.line, line.content);
        lines.iter().map(shown).collect()
    }
}

fn soon(tool: FileTool) -> FileToolRequest {
    FileToolRequest {
        tool,
        search_ms: 10_000,
    }
}

#[test]
fn ignored_files_are_found_only_on_request() {
    let tree = Tree::of(&[
        (".gitignore", "*.log\n/top.txt\nskipped/\n!kept.log\n"),
        ("a.log", "needle"),
        ("kept.log", "needle"),
        ("top.txt", "needle"),
        ("sub/top.txt", "needle"),
        ("sub/.gitignore", "!a.log\n*.tmp\n"),
        ("sub/a.log", "needle"),
        ("sub/x.tmp", "needle"),
        ("skipped/deep/x.txt", "needle"),
        ("other/.ignore", "secret*\n"),
        ("other/secret.txt", "needle"),
    ]);
    let found = ["kept.log", "sub/a.log", "sub/top.txt"];
    assert_eq!(
        tree.glob("*.*"),
        [
            ".gitignore",
            "kept.log",
            "other/.ignore",
            "sub/.gitignore",
            "sub/a.log",
            "sub/top.txt"
        ]
    );
    assert_eq!(
        tree.grep(|_| {}),
        found.map(|file| format!("{file}:1:needle"))
    );
    assert_eq!(tree.grep(|query| query.ignored = true).len(), 8);
    // Rules above the place that is searched hold too.
    let below = |query: &mut GrepQuery| query.path.push_str("/sub");
    assert_eq!(
        tree.grep(below),
        ["sub/a.log:1:needle", "sub/top.txt:1:needle"]
    );
}

#[test]
fn git_rules_do_not_apply_across_repositories() {
    let tree = Tree::of(&[
        (".gitignore", "*.txt\n"),
        ("repository/.git/info/exclude", "private*\n"),
        ("repository/a.txt", "needle"),
        ("repository/private.md", "needle"),
        ("plain/a.txt", "needle"),
    ]);
    assert_eq!(tree.grep(|_| {}), ["repository/a.txt:1:needle"]);
}

#[test]
fn rules_apply_in_large_directories() {
    for size in [1, 126, 127, 128, 129, 700] {
        let tree = Tree::of(&[("kept.txt", ""), ("sub/kept.txt", "")]);
        for number in 0..size {
            tree.put(&format!("{number}.log"), b"");
            tree.put(&format!("sub/{number}.tmp"), b"");
        }
        tree.put(".gitignore", b"*.log");
        tree.put("sub/.git/info/exclude", b"*.tmp");
        assert_eq!(
            tree.glob("*"),
            [".gitignore", "kept.txt", "sub/kept.txt"],
            "{size}"
        );
        let all = tree.glob_with("*", 1, true).total;
        assert_eq!(all, 2 * size + 3);
    }
}

#[test]
fn anchors_match_at_line_boundaries() {
    let tree = Tree::of(&[
        ("a.txt", "first\nneedle\n\nlast needle\n"),
        ("marked.txt", "\u{feff}begin\n"),
    ]);
    for (pattern, lines) in [
        ("^needle", &["a.txt:2:needle"][..]),
        ("^needle$", &["a.txt:2:needle"]),
        (r"\Aneedle\z", &["a.txt:2:needle"]),
        ("needle$", &["a.txt:2:needle", "a.txt:4:last needle"]),
        (r"\bneedle\b", &["a.txt:2:needle", "a.txt:4:last needle"]),
        ("^$", &["a.txt:3:"]),
        ("^first$", &["a.txt:1:first"]),
        ("^last$", &[]),
        ("(?m)^begin$", &["marked.txt:1:begin"]),
    ] {
        let found = tree.grep(|query| query.pattern = pattern.to_owned());
        assert_eq!(found, lines, "{pattern}");
    }
}

#[test]
fn build_directories_are_skipped_and_hidden_files_are_not() {
    let mut files = vec![
        (".env".to_owned(), "needle"),
        ("src/a".to_owned(), "needle"),
    ];
    for name in [
        ".git",
        "node_modules",
        "__pycache__",
        ".venv",
        "venv",
        ".tox",
        "dist",
        "build",
    ] {
        files.push((format!("{name}/x"), "needle"));
        files.push((format!("deep/{name}/y/x"), "needle"));
    }
    let files: Vec<_> = files
        .iter()
        .map(|(name, text)| (name.as_str(), *text))
        .collect();
    let tree = Tree::of(&files);
    for ignored in [false, true] {
        assert_eq!(
            tree.grep(|query| query.ignored = ignored),
            [".env:1:needle", "src/a:1:needle"]
        );
    }
    assert_eq!(tree.glob("*"), [".env", "src/a"]);
    // A skipped name that is the root of the search is searched.
    let named = |query: &mut GrepQuery| query.path.push_str("/node_modules");
    assert_eq!(tree.grep(named), ["node_modules/x:1:needle"]);
}

#[test]
fn the_newest_files_come_first_and_the_oldest_are_dropped() {
    let tree = Tree::of(&[("a.py", ""), ("d/b.py", ""), ("c.py", ""), ("x.txt", "")]);
    for (name, age) in [("a.py", 30), ("d/b.py", 10), ("c.py", 20)] {
        let file = fs::File::options()
            .write(true)
            .open(tree.at(name))
            .expect("open");
        let time = std::time::SystemTime::now() - Duration::from_secs(age);
        file.set_modified(time).expect("a time");
    }
    let found = tree.glob_with("*.py", 100, false);
    assert_eq!(found.paths, ["d/b.py", "c.py", "a.py"]);
    assert_eq!((found.total, found.truncated), (3, false));
    let found = tree.glob_with("*.py", 2, false);
    assert_eq!(found.paths, ["d/b.py", "c.py"]);
    assert_eq!((found.total, found.truncated), (3, true));
}

#[test]
fn symlinks_are_found_but_not_followed() {
    let tree = Tree::of(&[("real/file.txt", "needle")]);
    symlink("..", tree.at("real/up")).expect("link");
    symlink("real/file.txt", tree.at("name.txt")).expect("link");
    symlink("real", tree.at("other")).expect("link");
    symlink("nowhere", tree.at("broken.txt")).expect("link");
    symlink("/dev/zero", tree.at("zero.txt")).expect("link");
    assert_eq!(tree.glob("*"), ["name.txt", "real/file.txt"]);
    assert_eq!(tree.grep(|_| {}), ["real/file.txt:1:needle"]);
    // A link that is named is followed.
    let named = |query: &mut GrepQuery| query.path.push_str("/other");
    assert_eq!(tree.grep(named), ["other/file.txt:1:needle"]);
}

#[test]
fn pipes_are_skipped_also_as_ignore_files() {
    let tree = Tree::of(&[("a.txt", "needle"), ("sub/b.txt", "needle")]);
    for name in ["pipe", ".gitignore", ".ignore", "sub/.gitignore"] {
        tree.pipe(name);
    }
    let started = Instant::now();
    assert_eq!(tree.grep(|_| {}), ["a.txt:1:needle", "sub/b.txt:1:needle"]);
    assert_eq!(tree.glob("*"), ["a.txt", "sub/b.txt"]);
    assert!(started.elapsed() < Duration::from_secs(5));
    let named = tree.grep_with(|query| query.path.push_str("/pipe"));
    assert_eq!(
        named.expect_err("a pipe").fault,
        FileToolErrorKind::NotAFile
    );
}

#[test]
fn binary_files_are_skipped_wherever_their_first_nul_is() {
    let tree = Tree::of(&[("text", "needle")]);
    tree.put("early", b"needle\n\0\n");
    let mut late = b"needle\n".repeat(100_000);
    late.push(0);
    tree.put("late", &late);
    let utf16: Vec<u8> = "\u{feff}a needle\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    tree.put("utf16", &utf16);
    assert_eq!(
        tree.grep(|query| query.limit = 1_000_000),
        ["text:1:needle", "utf16:1:a needle"]
    );
}

#[test]
fn files_are_chosen_by_glob_and_by_type() {
    let tree = Tree::of(&[
        ("a.py", "needle"),
        ("src/b.py", "needle"),
        ("src/c.rs", "Needle"),
        ("Makefile", "needle"),
    ]);
    let include = |glob: &str| tree.grep(|query| query.include = Some(glob.to_owned()));
    assert_eq!(include("*.py"), ["a.py:1:needle", "src/b.py:1:needle"]);
    assert_eq!(include("src/*"), ["src/b.py:1:needle"]);
    let of_type = |name: &str| {
        tree.grep_with(|query| {
            query.file_type = Some(name.to_owned());
            query.ignore_case = true;
        })
    };
    let found = of_type("rust").expect("grep");
    assert_eq!((found.lines.len(), found.files_searched), (1, 1));
    assert_eq!(of_type("make").expect("grep").lines.len(), 1);
    let error = of_type("nonsense").expect_err("no such type");
    assert!(error.text.starts_with("Unknown file type: nonsense"));
}

#[test]
fn matches_are_counted_truncated_and_limited() {
    let text = "a needle\r\nnothing\nneedle\n".repeat(10);
    let tree = Tree::of(&[("one", &text), ("two", &text)]);
    let all = tree.grep_with(|_| {}).expect("grep");
    assert_eq!(
        (all.total, all.truncated, all.files_searched),
        (40, false, 2)
    );
    assert_eq!(all.lines[0].content, "a needle");
    assert_eq!(all.lines[1].line, 3);
    let some = tree.grep_with(|query| query.limit = 7).expect("grep");
    assert_eq!((some.lines.len(), some.truncated), (7, true));
    let exact = tree.grep_with(|query| query.limit = 40).expect("grep");
    assert_eq!((exact.lines.len(), exact.truncated), (40, false));
    let long = format!("{}needle{}", "ä".repeat(50_000), "x".repeat(50_000));
    let tree = Tree::of(&[("long", &long), ("short", &format!("needle{long}"))]);
    let found = tree.grep_with(|_| {}).expect("grep").lines;
    for line in &found {
        assert_eq!(line.content.chars().count(), 2000);
        assert!(line.content.contains("needle"));
    }
    assert!(found[0].content.starts_with('…'));
    assert!(found[1].content.starts_with("needle"));
}

#[test]
fn a_response_is_bounded() {
    let line = format!("needle{}\n", "y".repeat(1990));
    let tree = Tree::of(&[("a", &line.repeat(4000)), ("b", &line.repeat(4000))]);
    let found = tree.grep_with(|query| query.limit = 10_000).expect("grep");
    assert!(found.truncated);
    let bytes = postcard::to_stdvec(&Ok::<_, FileToolError>(FileToolResponse::Grep(found)));
    assert!(bytes.expect("bytes").len() <= MAX_RESPONSE_BYTES);
}

#[test]
fn errors_have_the_messages_of_langbot_box() {
    let tree = Tree::of(&[("file", "needle")]);
    let error = tree.grep_with(|query| query.pattern = "(".to_owned());
    let error = error.expect_err("no expression");
    assert!(error.text.starts_with("Invalid regex: "), "{}", error.text);
    assert_eq!(error.fault, FileToolErrorKind::InvalidArgument);
    let error = tree.grep_with(|query| query.path = "/no/where".to_owned());
    assert_eq!(
        error.expect_err("nothing").text,
        "Path not found: /no/where"
    );
    for path in [
        "/no/where".to_owned(),
        tree.at("file").display().to_string(),
    ] {
        let tool = FileTool::Glob {
            pattern: "*".to_owned(),
            path: path.clone(),
            limit: 1,
            ignored: false,
        };
        let error = run(soon(tool), &|| true).expect_err("no directory");
        assert_eq!(error.text, format!("Path is not a directory: {path}"));
    }
}

#[test]
fn a_search_ends_at_its_deadline_or_without_a_caller() {
    let tree = Tree::of(&[]);
    for directory in 0..40 {
        for file in 0..50 {
            tree.put(&format!("{directory}/{file}.txt"), b"needle\n");
        }
    }
    let request = |search_ms| FileToolRequest {
        tool: FileTool::Grep(GrepQuery {
            pattern: "needle".to_owned(),
            path: tree.root(),
            include: None,
            file_type: None,
            ignore_case: false,
            limit: 10_000,
            ignored: false,
        }),
        search_ms,
    };
    let Ok(FileToolResponse::Grep(complete)) = run(request(60_000), &|| true) else {
        panic!("no answer")
    };
    assert_eq!((complete.total, complete.truncated), (2000, false));
    let Ok(FileToolResponse::Grep(none)) = run(request(0), &|| true) else {
        panic!("no answer")
    };
    assert!(none.truncated && none.total < 2000);
    // A search without a caller ends by itself.
    let started = Instant::now();
    assert!(run(request(60_000), &|| false).is_ok());
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn pseudo_file_systems_are_not_searched() {
    let tool = FileTool::Glob {
        pattern: "cmdline".to_owned(),
        path: "/proc".to_owned(),
        limit: 10,
        ignored: false,
    };
    let error = run(soon(tool), &|| true).expect_err("procfs");
    assert_eq!(error.fault, FileToolErrorKind::NotAFile);
}
