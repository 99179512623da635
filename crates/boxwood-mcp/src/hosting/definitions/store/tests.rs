use super::*;

fn spec(name: &str, env: &[(&str, &str)]) -> McpServerSpec {
    let env: BTreeMap<_, _> = env.iter().copied().collect();
    serde_json::from_value(serde_json::json!({
        "name": name, "command": "uvx", "args": ["mcp-server-time"], "env": env,
    }))
    .expect("a spec")
}

fn name(text: &str) -> McpServerName {
    McpServerName::new(text).expect("a name")
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).expect("a file")
}

struct Fixture {
    dir: tempfile::TempDir,
    store: Store,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(&dir.path().join("mcp")).expect("a store");
        Self { dir, store }
    }

    fn reopened(&self) -> Store {
        Store::open(&self.path("")).expect("a store")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("mcp").join(name)
    }
}

#[test]
fn a_definition_and_its_values_survive_a_restart() {
    let fixture = Fixture::new();
    let first = spec("time", &[("TOKEN", "hunter2")]);
    fixture.store.put(&first, at(1)).expect("stored");
    let second = spec("time", &[("TOKEN", "hunter3"), ("MODE", "x")]);
    fixture.store.put(&second, at(2)).expect("stored");
    let found = fixture.reopened().read(&name("time")).expect("read");
    let expected = Stored {
        spec: second,
        created_at: at(1),
        updated_at: at(2),
    };
    assert_eq!(found, Some(expected));
}

#[test]
fn values_are_stored_separately_and_only_readable_by_the_owner() {
    let fixture = Fixture::new();
    let spec = spec("time", &[("TOKEN", "hunter2")]);
    let stored = fixture.store.put(&spec, at(1)).expect("stored");
    assert!(!text(fixture.path("servers/time.json")).contains("hunter2"));
    assert!(text(fixture.path("secrets/time.json")).contains("hunter2"));
    let mode = |name: &str| {
        let data = fs::metadata(fixture.path(name)).expect("metadata");
        data.permissions().mode() & 0o777
    };
    assert_eq!(mode("secrets/time.json"), 0o600);
    assert_eq!(mode("servers/time.json"), 0o600);
    assert_eq!(mode("secrets"), 0o700);
    assert_eq!(mode(""), 0o700);
    let shown = format!("{stored:?}");
    assert!(
        shown.contains("TOKEN") && !shown.contains("hunter2"),
        "{shown}"
    );
}

#[test]
fn replaced_values_are_removed_from_disk() {
    let fixture = Fixture::new();
    let put = |env: &[(&str, &str)]| {
        fixture
            .store
            .put(&spec("time", env), at(1))
            .expect("stored")
    };
    put(&[("TOKEN", "hunter2")]);
    put(&[("TOKEN", "hunter3")]);
    assert!(!text(fixture.path("secrets/time.json")).contains("hunter2"));
    put(&[]);
    assert!(!fixture.path("secrets/time.json").exists());
    let found = fixture
        .store
        .read(&name("time"))
        .expect("read")
        .expect("there");
    assert!(found.spec.env.is_empty());
}

#[test]
fn a_crash_between_both_writes_keeps_the_old_pair() {
    let fixture = Fixture::new();
    fixture
        .store
        .put(&spec("time", &[("A", "old")]), at(1))
        .expect("stored");
    let before = text(fixture.path("servers/time.json"));
    fixture
        .store
        .put(&spec("time", &[("B", "new")]), at(2))
        .expect("stored");
    // A crash after the first write.
    fs::write(fixture.path("servers/time.json"), before).expect("written");
    let both = r#"{"1":{"A":"old"},"2":{"B":"new"}}"#;
    fs::write(fixture.path("secrets/time.json"), both).expect("written");
    let found = fixture
        .reopened()
        .read(&name("time"))
        .expect("read")
        .expect("there");
    assert_eq!(found.spec, spec("time", &[("A", "old")]));
    // The unused revision does not affect the next change.
    let next = spec("time", &[("C", "next")]);
    fixture.store.put(&next, at(3)).expect("stored");
    let found = fixture
        .reopened()
        .read(&name("time"))
        .expect("read")
        .expect("there");
    assert_eq!(found.spec, next);
    assert!(!text(fixture.path("secrets/time.json")).contains("old"));
}

#[test]
fn an_unreadable_file_does_not_hide_the_others() {
    let fixture = Fixture::new();
    for server in ["a", "b", "c"] {
        fixture
            .store
            .put(&spec(server, &[("K", "hunter2")]), at(1))
            .expect("stored");
    }
    fs::write(fixture.path("servers/b.json"), "{\"spec\": \"hunter2\"").expect("written");
    fs::remove_file(fixture.path("secrets/c.json")).expect("removed");
    fs::write(fixture.path("servers/-.json"), "{}").expect("written");
    fs::copy(
        fixture.path("servers/a.json"),
        fixture.path("servers/d.json"),
    )
    .expect("copied");
    let listed = fixture.reopened().list().expect("listed");
    let found: Vec<_> = listed
        .servers
        .iter()
        .map(|it| it.spec.name.as_str())
        .collect();
    assert_eq!(found, ["a"]);
    assert_eq!(listed.unread, ["b", "c", "d"].map(name));
    assert_eq!(listed.notices.len(), 4, "{:?}", listed.notices);
    assert!(!listed.notices.concat().contains("hunter2"));
    assert!(fixture.store.read(&name("b")).is_err());
    // Adding it again repairs it.
    fixture.store.put(&spec("b", &[]), at(2)).expect("stored");
    assert!(fixture.store.read(&name("b")).expect("read").is_some());
}

#[test]
fn removal_and_startup_remove_all_files() {
    let fixture = Fixture::new();
    fixture
        .store
        .put(&spec("time", &[("A", "x")]), at(1))
        .expect("stored");
    fixture
        .store
        .put_run_record(&name("time"), &"hello")
        .expect("stored");
    assert_eq!(
        fixture.store.run_record::<String>(&name("time")).as_deref(),
        Some("hello")
    );
    assert_eq!(fixture.store.run_record::<u64>(&name("time")), None);
    assert!(fixture.store.remove(&name("time")).expect("removed"));
    assert!(!fixture.store.remove(&name("time")).expect("nothing to do"));
    for directory in ["servers", "secrets", "greetings"] {
        assert_eq!(names(&fixture.path(directory)).expect("listed"), [""; 0]);
    }
    // An interrupted removal leaves no definition. An unreadable server has one.
    let removed = ["secrets/gone.json", "greetings/gone.json"];
    let kept = ["servers/bad.json", "secrets/bad.json", "greetings/bad.json"];
    let partial = ["servers/.new-abc", "secrets/.new-abc"];
    for path in removed.iter().chain(&kept).chain(&partial) {
        fs::write(fixture.path(path), "{").expect("written");
    }
    fixture.reopened();
    for path in removed.iter().chain(&partial) {
        assert!(!fixture.path(path).exists(), "{path}");
    }
    for path in kept {
        assert!(fixture.path(path).exists(), "{path}");
    }
}
