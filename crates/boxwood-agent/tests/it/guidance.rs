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
    let said = guidance(&AgentSettings::default(), []);
    assert!(said.text.contains("`exec`"));
    assert!(said.text.contains("do not show it"));
    assert!(said.text.contains("as long as the box lives"));
    assert!(!said.text.contains("Skills"));
    assert!(said.skills.is_empty());
    let mounted = AgentSettings {
        default_workspace: Some(PathBuf::from("/srv/w")),
        ..AgentSettings::default()
    };
    let said = guidance(&mounted, []);
    assert!(said.text.contains("The user's files are at /workspace"));
    // Where that is on the host is the operator's affair.
    assert!(!said.text.contains("/srv/w"));
}

#[test]
fn visible_skills_are_listed_with_how_to_use_them() {
    let skills = [
        skill("pdf", "PDF tools", "Fill\n# in forms"),
        skill("csv", "csv", ""),
    ];
    let said = guidance(&AgentSettings::default(), &skills);
    assert!(said.text.contains("`activate`"));
    assert!(
        said.text
            .ends_with("Available Skills:\n- csv\n- pdf (PDF tools): Fill # in forms"),
        "{}",
        said.text
    );
    assert_eq!(said.skills["pdf"], "Fill\n# in forms");
    assert_eq!(said.skills["csv"], "");
}

#[test]
fn the_operators_own_words_replace_ours() {
    let own = AgentSettings {
        guidance: Some("Be brief.".to_owned()),
        ..AgentSettings::default()
    };
    assert_eq!(guidance(&own, []).text, "Be brief.");
    let said = guidance(&own, &[skill("pdf", "", "x")]).text;
    assert!(
        said.starts_with("Be brief.\n\n") && said.ends_with("- pdf: x"),
        "{said}"
    );
}
