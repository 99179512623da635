//! Installs that are files of a test.

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

fn made(cache: &Cache, key: &str) -> Kept {
    let fresh = cache.fresh().expect("a place");
    fs::write(fresh.join("tool"), "x").expect("written");
    cache.keep(&fresh, key, 10).expect("kept")
}

#[test]
fn an_install_is_found_only_when_it_is_whole() {
    let place = Place::new();
    let cache = place.cache();
    let fresh = cache.fresh().expect("a place");
    assert_eq!(cache.find("k").expect("read"), None);
    fs::write(fresh.join("tool"), "x").expect("written");
    let kept = cache.keep(&fresh, "k", 10).expect("kept");
    assert_eq!(cache.find("k").expect("read"), Some(kept.clone()));
    assert!(kept.place.join("tool").exists());
    cache.remove("k").expect("removed");
    cache.remove("k").expect("nothing to do");
    assert_eq!(place.entries(), 0);
    assert_eq!(cache.costs().expect("read"), []);
}

#[test]
fn one_that_is_made_again_is_found_and_the_older_one_stays_for_whoever_has_it() {
    let place = Place::new();
    let cache = place.cache();
    let first = made(&cache, "k");
    made(&cache, "kk");
    for expected in ["k.1", "k.2"] {
        let next = made(&cache, "k");
        assert_eq!(next.name, expected);
        assert_eq!(cache.find("k").expect("read"), Some(next));
    }
    assert!(first.place.join("tool").exists());
    cache.remove("k").expect("removed");
    assert_eq!(cache.find("k").expect("read").expect("there").name, "k.2");
    // The key is held for all of them.
    let held = cache.try_hold("k.2").expect("free");
    assert!(cache.try_hold("k").is_none());
    drop(held);
}

#[test]
fn a_discarded_install_leaves_nothing() {
    let place = Place::new();
    let cache = place.cache();
    let fresh = cache.fresh().expect("a place");
    fs::create_dir(fresh.join("half")).expect("made");
    cache.discard(&fresh).expect("removed");
    assert_eq!(place.entries(), 0);
}

#[test]
fn what_nobody_finishes_is_cleared_but_not_what_is_made_now() {
    let place = Place::new();
    place.cache().fresh().expect("a place");
    let cache = place.cache();
    let now = cache.fresh().expect("a place");
    clear_unfinished(&cache.unfinished().expect("listed"));
    assert_eq!(place.entries(), 1);
    assert!(now.exists());
    // Whoever made it could not remove its box, and leaves both to others.
    cache.leave(&now);
    clear_unfinished(&cache.unfinished().expect("listed"));
    assert_eq!(place.entries(), 0);
}

#[test]
fn what_cannot_be_removed_does_not_save_the_rest() {
    let place = Place::new();
    place.cache().fresh().expect("a place");
    // A file under such a name is no directory, and stays.
    let stuck = place.dir.path().join("cache/.new-0");
    fs::write(&stuck, "").expect("written");
    place.cache().fresh().expect("a place");
    clear_unfinished(&place.cache().unfinished().expect("listed"));
    assert!(stuck.exists());
    assert_eq!(place.entries(), 1);
}

#[test]
fn installs_are_listed_by_when_somebody_last_wanted_them() {
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
    // What an older daemon kept is measured.
    fs::remove_file(place.dir.path().join("sizes/b")).expect("removed");
    cache.touch("b").expect("touched");
    let costs = cache.costs().expect("read");
    assert!(
        costs
            .iter()
            .any(|cost| cost.name == "b" && cost.bytes != 10)
    );
}
