use std::path::PathBuf;

use boxwood_agent::{AgentSettings, guidance};
use boxwood_api::SkillInfo;
use jiff::Timestamp;

fn skill(name: &str, display_name: &str, description: &str) -> SkillInfo {
    SkillInfo {
        name: name.to_owned(),
        display_name: display_name.to_owned(),
        description: description.to_owned(),
        created_at: Timestamp::UNIX_EPOCH,
        updated_at: Timestamp::UNIX_EPOCH,
        warnings: Vec::new(),
    }
}

#[test]
fn a_model_learns_when_to_use_the_box() {
    let result = guidance(&AgentSettings::default(), []);
    assert!(result.text.contains("`exec`"));
    assert!(result.text.contains("do not show it"));
    assert!(result.text.contains("as long as the box lives"));
    assert!(!result.text.contains("Skills"));
    assert!(result.skills.is_empty());
    let mounted = AgentSettings {
        default_workspace: Some(PathBuf::from("/srv/w")),
        ..AgentSettings::default()
    };
    let result = guidance(&mounted, []);
    assert!(result.text.contains("The user's files are at /workspace"));
    // Where that is on the host is the operator's affair.
    assert!(!result.text.contains("/srv/w"));
}

#[test]
fn visible_skills_are_listed_with_how_to_use_them() {
    let skills = [
        skill("pdf", "PDF tools", "Fill\n# in forms"),
        skill("csv", "csv", ""),
    ];
    let result = guidance(&AgentSettings::default(), &skills);
    assert!(result.text.contains("`activate`"));
    assert!(
        result
            .text
            .ends_with("Available Skills:\n- csv\n- pdf (PDF tools): Fill # in forms"),
        "{}",
        result.text
    );
    assert_eq!(result.skills["pdf"], "Fill\n# in forms");
    assert_eq!(result.skills["csv"], "");
}

#[test]
fn the_operators_own_words_replace_ours() {
    let own = AgentSettings {
        guidance: Some("Be brief.".to_owned()),
        ..AgentSettings::default()
    };
    assert_eq!(guidance(&own, []).text, "Be brief.");
    let text = guidance(&own, &[skill("pdf", "", "x")]).text;
    assert!(
        text.starts_with("Be brief.\n\n") && text.ends_with("- pdf: x"),
        "{text}"
    );
}
