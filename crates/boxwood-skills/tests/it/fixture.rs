//! A store in a temporary directory, with a canary tree around it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use boxwood_skills::{Limits, NewSkill, Skill, SkillStore};
use tempfile::TempDir;

pub(crate) struct Fixture {
    top: TempDir,
    pub(crate) store: SkillStore,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Self {
        let top = tempfile::tempdir().expect("temporary directory");
        let real = top.path().canonicalize().expect("real path");
        for dir in ["root", "outside"] {
            fs::create_dir(real.join(dir)).expect("directory");
        }
        fs::write(real.join("canary"), "alive").expect("canary");
        Self {
            store: SkillStore::new(real.join("root"), limits),
            top,
        }
    }

    fn real(&self) -> PathBuf {
        self.top.path().canonicalize().expect("real path")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.real().join("root")
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.real().join("outside")
    }

    /// A file of the store, with the directories above it.
    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        write(&self.root().join(path), content)
    }

    pub(crate) fn put_outside(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        write(&self.outside().join(path), content)
    }

    pub(crate) fn create(&self, name: &str) -> Skill {
        self.store
            .create(&NewSkill {
                name: name.to_owned(),
                ..NewSkill::default()
            })
            .expect("created")
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let skills = self.store.list().expect("listed");
        skills.into_iter().map(|skill| skill.name).collect()
    }

    /// Everything around the store, to compare before and after.
    pub(crate) fn around(&self) -> BTreeMap<PathBuf, String> {
        let mut seen = snapshot(&self.real());
        let root = self.root();
        seen.retain(|path, _| !path.starts_with(&root));
        seen
    }

    /// Everything in the store, the hidden included.
    pub(crate) fn inside(&self) -> BTreeMap<PathBuf, String> {
        snapshot(&self.root())
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).expect("text")
    }
}

fn write(path: &Path, content: impl AsRef<[u8]>) -> PathBuf {
    fs::create_dir_all(path.parent().expect("parent")).expect("directories");
    fs::write(path, content).expect("written");
    path.to_owned()
}

fn snapshot(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut seen = BTreeMap::new();
    let mut queue = vec![top.to_owned()];
    while let Some(dir) = queue.pop() {
        for entry in fs::read_dir(&dir).expect("readable") {
            let path = entry.expect("entry").path();
            let meta = fs::symlink_metadata(&path).expect("metadata");
            let content = if meta.is_dir() {
                queue.push(path.clone());
                String::new()
            } else if meta.is_symlink() {
                format!("-> {}", fs::read_link(&path).expect("link").display())
            } else if meta.is_file() {
                String::from_utf8_lossy(&fs::read(&path).expect("readable")).into_owned()
            } else {
                "special".to_owned()
            };
            seen.insert(path, format!("{:o} {content}", meta.mode()));
        }
    }
    seen
}

pub(crate) fn skill_md(name: &str) -> String {
    format!("---\nname: {name}\ndescription: about {name}\n---\n\nDo {name}.\n")
}
