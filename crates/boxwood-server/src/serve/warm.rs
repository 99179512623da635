//! Determines which boxes to prewarm: those of profiles with `warm`, admitted like any request.

use std::collections::BTreeMap;
use std::time::Duration;

use boxwood_api::{SessionId, SpecRequest};
use boxwood_policy::{Facts, Origin, PolicyRules, Profile, admit};
use boxwood_session::WarmPoolSpec;

/// The specs of requests that name only the profile.
pub(crate) fn pool_specs(rules: &PolicyRules) -> Vec<WarmPoolSpec> {
    let warm = rules.profiles.iter().filter(|profile| profile.warm > 0);
    warm.filter_map(|profile| {
        pool_spec(profile, rules)
            .inspect_err(|why| {
                tracing::warn!(
                    profile = profile.name,
                    why,
                    "boxes of this profile are not prewarmed"
                );
            })
            .ok()
    })
    .collect()
}

fn pool_spec(profile: &Profile, rules: &PolicyRules) -> Result<WarmPoolSpec, String> {
    let session = SessionId::new(&format!("warm-{}", profile.name));
    let request = SpecRequest {
        session_id: Some(session.map_err(|error| error.to_string())?),
        profile: Some(profile.name.clone()),
        ..SpecRequest::default()
    };
    let admitted = admit(&request, Origin::Operator, &Facts::default(), rules);
    Ok(WarmPoolSpec {
        spec: admitted.map_err(|denial| denial.to_string())?.spec,
        most: profile.warm,
    })
}

/// Freeze delays of profiles that set one.
pub(crate) fn freeze_after(rules: &PolicyRules) -> BTreeMap<String, Duration> {
    let own = |profile: &Profile| {
        let seconds = profile.freeze_after_sec?;
        Some((profile.name.clone(), Duration::from_secs(seconds)))
    };
    rules.profiles.iter().filter_map(own).collect()
}

#[cfg(test)]
mod tests {
    use boxwood_policy::PolicyConfig;

    use super::*;

    fn rules(profiles: &str) -> PolicyRules {
        let config = PolicyConfig {
            profiles: toml::from_str(profiles).expect("TOML"),
            ..PolicyConfig::default()
        };
        PolicyRules::new(&config, []).expect("rules")
    }

    #[test]
    fn prewarmed_boxes_match_requests_that_name_only_the_profile() {
        let rules = rules("[team]\nwarm = 3\nmemory_mb = 100\n[other]\nmemory_mb = 200");
        let specs = pool_specs(&rules);
        let [spec] = specs.as_slice() else {
            panic!("one profile wants any: {specs:?}");
        };
        assert_eq!(spec.most, 3);
        let request = SpecRequest {
            session_id: SessionId::new("mine").ok(),
            profile: Some("team".to_owned()),
            ..SpecRequest::default()
        };
        let admitted =
            admit(&request, Origin::Client, &Facts::default(), &rules).expect("admitted");
        assert!(spec.spec.creates_same_box_as(&admitted.spec));
    }

    #[test]
    fn a_profile_overrides_the_freeze_delay() {
        let rules = rules("[soon]\nfreeze_after_sec = 5\n[never]\nfreeze_after_sec = 0\n[usual]");
        let after = freeze_after(&rules);
        assert_eq!(after["soon"], Duration::from_secs(5));
        assert_eq!(after["never"], Duration::ZERO);
        assert!(!after.contains_key("usual"));
    }
}
