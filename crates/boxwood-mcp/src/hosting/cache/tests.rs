use std::time::Duration;

use super::*;

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
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

fn made(cache: &Cache, key: &str) -> String {
    let fresh = cache.fresh().expect("a place");
    fs::write(fresh.join("tool"), "x").expect("written");
    cache.keep(&fresh, key, 10).expect("kept")
}

#[test]
fn only_complete_installs_are_found() {
    let place = Place::new();
    let cache = place.cache();
    let fresh = cache.fresh().expect("a place");
    assert_eq!(cache.find("k").expect("read"), None);
    fs::write(fresh.join("tool"), "x").expect("written");
    let kept = cache.keep(&fresh, "k", 10).expect("kept");
    assert_eq!(cache.find("k").expect("read"), Some(kept.clone()));
    assert!(cache.place(&kept).join("tool").exists());
    cache.remove("k").expect("removed");
    cache.remove("k").expect("nothing to do");
    assert_eq!(place.entries(), 0);
    assert_eq!(cache.costs().expect("read"), []);
}

#[test]
fn a_repeated_install_is_found_and_the_older_one_stays() {
    let place = Place::new();
    let cache = place.cache();
    let first = made(&cache, "k");
    made(&cache, "kk");
    for expected in ["k.1", "k.2"] {
        let next = made(&cache, "k");
        assert_eq!(next, expected);
        assert_eq!(cache.find("k").expect("read"), Some(next));
    }
    assert!(cache.place(&first).join("tool").exists());
    cache.remove("k").expect("removed");
    assert_eq!(cache.find("k").expect("read").expect("there"), "k.2");
    // The lock covers all numbers of a key.
    let held = cache.try_hold("k.2").expect("free");
    assert!(cache.try_hold("k").is_none());
    drop(held);
}

#[test]
fn a_discarded_install_is_removed() {
    let place = Place::new();
    let cache = place.cache();
    let fresh = cache.fresh().expect("a place");
    fs::create_dir(fresh.join("half")).expect("made");
    cache.discard(&fresh).expect("removed");
    assert_eq!(place.entries(), 0);
}

#[test]
fn leftover_partial_installs_are_removed_and_active_ones_stay() {
    let place = Place::new();
    place.cache().fresh().expect("a place");
    let cache = place.cache();
    let now = cache.fresh().expect("a place");
    clear_unfinished(&cache.partial().expect("listed"));
    assert_eq!(place.entries(), 1);
    assert!(now.exists());
    // The installer's box could not be removed.
    cache.leave(&now);
    clear_unfinished(&cache.partial().expect("listed"));
    assert_eq!(place.entries(), 0);
}

#[test]
fn a_failed_removal_does_not_stop_the_others() {
    let place = Place::new();
    place.cache().fresh().expect("a place");
    // A regular file with such a name cannot be removed as a directory.
    let stuck = place.dir.path().join("cache/.new-0");
    fs::write(&stuck, "").expect("written");
    place.cache().fresh().expect("a place");
    clear_unfinished(&place.cache().partial().expect("listed"));
    assert!(stuck.exists());
    assert_eq!(place.entries(), 1);
}

#[test]
fn installs_are_listed_by_last_use() {
    let place = Place::new();
    let cache = place.cache();
    for (key, age) in [("a", 30), ("b", 20), ("c", 10)] {
        made(&cache, key);
        let long_ago = SystemTime::now() - Duration::from_mins(age);
        let noted = fs::File::options()
            .write(true)
            .open(place.dir.path().join("sizes").join(key));
        noted
            .and_then(|noted| noted.set_modified(long_ago))
            .expect("set");
    }
    cache.touch("a").expect("touched");
    let costs = cache.costs().expect("read");
    let names: Vec<_> = costs.iter().map(|cost| cost.name.as_str()).collect();
    assert_eq!(names, ["b", "c", "a"]);
    assert!(costs.iter().all(|cost| cost.bytes == 10));
    // A missing size is measured again.
    fs::remove_file(place.dir.path().join("sizes/b")).expect("removed");
    cache.touch("b").expect("touched");
    let costs = cache.costs().expect("read");
    assert!(
        costs
            .iter()
            .any(|cost| cost.name == "b" && cost.bytes != 10)
    );
}
