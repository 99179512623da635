//! Where a configuration keeps its skills.

use boxwood_skills::SkillStore;

use crate::{Config, skills_root};

/// The same store for the daemon and for `boxwood run`. Its directory need not exist yet.
pub fn skill_store(config: &Config) -> SkillStore {
    SkillStore::new(skills_root(config), config.skills.limits.clone())
}
