use std::time::Duration;

use super::*;

struct Fixture {
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a directory"),
        }
    }

    fn cache(&self) -> Cache {
        let below = |name: &str| self.dir.path().join(name);
        Cache::open(&below("cache"), &below("sizes")).expect("a cache")
    }

    fn entries(&self) -> usize {
        let listed = fs::read_dir(self.dir.path().join("cache"));
        listed.expect("listed").count()
    }
}

fn add_install(cache: &Cache, key: &str) -> String {
    let directory = cache.create_directory().expect("a directory");
    fs::write(directory.join("tool"), "x").expect("written");
    cache.keep(&directory, key, 10).expect("kept")
}

#[test]
fn only_complete_installs_are_found() {
    let fixture = Fixture::new();
    let cache = fixture.cache();
    let directory = cache.create_directory().expect("a directory");
    assert_eq!(cache.find("k").expect("read"), None);
    fs::write(directory.join("tool"), "x").expect("written");
    let name = cache.keep(&directory, "k", 10).expect("kept");
    assert_eq!(cache.find("k").expect("read"), Some(name.clone()));
    assert!(cache.path(&name).join("tool").exists());
    cache.remove("k").expect("removed");
    cache.remove("k").expect("nothing to do");
    assert_eq!(fixture.entries(), 0);
    assert_eq!(cache.installs().expect("read"), []);
}

#[test]
fn a_repeated_install_is_found_and_the_older_one_stays() {
    let fixture = Fixture::new();
    let cache = fixture.cache();
    let first = add_install(&cache, "k");
    add_install(&cache, "kk");
    for expected in ["k.1", "k.2"] {
        let next = add_install(&cache, "k");
        assert_eq!(next, expected);
        assert_eq!(cache.find("k").expect("read"), Some(next));
    }
    assert!(cache.path(&first).join("tool").exists());
    cache.remove("k").expect("removed");
    assert_eq!(cache.find("k").expect("read").expect("there"), "k.2");
    // The lock covers all numbers of a key.
    let held = cache.try_hold("k.2").expect("free");
    assert!(cache.try_hold("k").is_none());
    drop(held);
}

#[test]
fn a_discarded_install_is_removed() {
    let fixture = Fixture::new();
    let cache = fixture.cache();
    let directory = cache.create_directory().expect("a directory");
    fs::create_dir(directory.join("half")).expect("made");
    cache.discard(&directory).expect("removed");
    assert_eq!(fixture.entries(), 0);
}

#[test]
fn leftover_partial_installs_are_removed_and_active_ones_stay() {
    let fixture = Fixture::new();
    fixture.cache().create_directory().expect("a directory");
    let cache = fixture.cache();
    let active = cache.create_directory().expect("a directory");
    remove_partial(&cache.partial().expect("listed"));
    assert_eq!(fixture.entries(), 1);
    assert!(active.exists());
    // The installer's box could not be removed.
    cache.leave(&active);
    remove_partial(&cache.partial().expect("listed"));
    assert_eq!(fixture.entries(), 0);
}

#[test]
fn a_failed_removal_does_not_stop_the_others() {
    let fixture = Fixture::new();
    fixture.cache().create_directory().expect("a directory");
    // A regular file with such a name cannot be removed as a directory.
    let stuck = fixture.dir.path().join("cache/.new-0");
    fs::write(&stuck, "").expect("written");
    fixture.cache().create_directory().expect("a directory");
    remove_partial(&fixture.cache().partial().expect("listed"));
    assert!(stuck.exists());
    assert_eq!(fixture.entries(), 1);
}

#[test]
fn installs_are_listed_by_last_use() {
    let fixture = Fixture::new();
    let cache = fixture.cache();
    for (key, age) in [("a", 30), ("b", 20), ("c", 10)] {
        add_install(&cache, key);
        let last_use = SystemTime::now() - Duration::from_mins(age);
        let file = fs::File::options()
            .write(true)
            .open(fixture.dir.path().join("sizes").join(key));
        file.and_then(|file| file.set_modified(last_use))
            .expect("set");
    }
    cache.touch("a").expect("touched");
    let installs = cache.installs().expect("read");
    let names: Vec<_> = installs
        .iter()
        .map(|install| install.name.as_str())
        .collect();
    assert_eq!(names, ["b", "c", "a"]);
    assert!(installs.iter().all(|install| install.bytes == 10));
    // A missing size is measured again.
    fs::remove_file(fixture.dir.path().join("sizes/b")).expect("removed");
    cache.touch("b").expect("touched");
    let installs = cache.installs().expect("read");
    assert!(
        installs
            .iter()
            .any(|install| install.name == "b" && install.bytes != 10)
    );
}
