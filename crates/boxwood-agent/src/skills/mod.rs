//! Determines the skills that a conversation may see and use.

pub(crate) mod activation;

use std::collections::BTreeSet;

use boxwood_api::{AgentQuery, MAX_SKILLS, SkillInfo};

/// The skills of a conversation.
#[derive(Debug, Default)]
pub(crate) struct Skills {
    pub(crate) visible: BTreeSet<String>,
    /// Those that still exist in the store.
    pub(crate) activated: BTreeSet<String>,
}

/// Those that the conversation's pipeline allows, in the store's order.
pub(crate) fn visible(all: Vec<SkillInfo>, query: &AgentQuery) -> Vec<SkillInfo> {
    let bound = activation::bound(query);
    all.into_iter()
        .filter(|skill| {
            bound
                .as_ref()
                .is_none_or(|bound| bound.contains(&skill.name))
        })
        .collect()
}

impl Skills {
    pub(crate) fn new(
        all: Vec<SkillInfo>,
        query: &AgentQuery,
        remembered: BTreeSet<String>,
    ) -> Self {
        let mut activated = activation::claimed(query);
        activated.retain(|name| all.iter().any(|skill| skill.name == *name));
        let visible: BTreeSet<String> = visible(all, query)
            .into_iter()
            .map(|skill| skill.name)
            .collect();
        // The platform may activate skills that it does not list. Remembered ones must still be visible.
        activated.extend(remembered.into_iter().filter(|name| visible.contains(name)));
        Self { visible, activated }
    }

    /// The skills to mount, activated ones first, up to [`MAX_SKILLS`].
    pub(crate) fn mounted(&self) -> Mounted {
        let mut names: Vec<String> = self.activated.iter().cloned().collect();
        names.extend(self.visible.difference(&self.activated).cloned());
        let left_out = names.len().saturating_sub(MAX_SKILLS);
        names.truncate(MAX_SKILLS);
        Mounted { names, left_out }
    }
}

pub(crate) struct Mounted {
    pub(crate) names: Vec<String>,
    pub(crate) left_out: usize,
}

impl Mounted {
    /// A notice for the model about the skills that are not mounted.
    pub(crate) fn notice(&self) -> Option<String> {
        (self.left_out > 0).then(|| {
            format!(
                "a box has at most {MAX_SKILLS} skills mounted; {} more are not mounted until they are \
                 activated",
                self.left_out
            )
        })
    }
}
