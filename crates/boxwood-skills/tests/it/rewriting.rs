//! What an update changes, and what it leaves alone.

use boxwood_skills::{NewSkill, SkillPatch};

use crate::fixture::Fixture;

fn updated(before: &str, patch: &SkillPatch) -> String {
    let fixture = Fixture::new();
    fixture.put("one/SKILL.md", before);
    let name = fixture.names().remove(0);
    fixture.store.update(&name, patch).expect("updated");
    fixture.text("one/SKILL.md")
}

fn described(before: &str, description: &str) -> String {
    updated(
        before,
        &SkillPatch {
            description: Some(description.to_owned()),
            ..SkillPatch::default()
        },
    )
}

#[test]
fn unknown_keys_comments_and_order_are_kept() {
    let before = "---\n# the licence matters\nlicense: MIT # really\nname: one\n\
        description: old # why\nmetadata:\n  author: \"x\"   # me\n  version: 1.0\n\
        allowed-tools: Bash(git:*) Read\n# the end\n---\n\nbody\n";
    let after = described(before, "new");
    assert_eq!(
        after,
        before.replace("description: old", "description: new")
    );
}

#[test]
fn a_value_of_several_lines_is_replaced_completely() {
    for value in [
        ">-\n  folded\n  text\n",
        "|\n  kept\n\n  lines\n",
        "'quoted\n  on two'\n",
        "plain\n  on two\n",
    ] {
        let before = format!("---\nname: one\ndescription: {value}license: MIT\n---\n\nbody\n");
        assert_eq!(
            described(&before, "new"),
            "---\nname: one\ndescription: new\nlicense: MIT\n---\n\nbody\n"
        );
    }
}

#[test]
fn a_new_field_is_inserted_in_order_and_a_blank_one_is_removed() {
    assert_eq!(
        described("---\nlicense: MIT\nname: one\nx: y\n---\n\nbody\n", "new"),
        "---\nlicense: MIT\nname: one\ndescription: new\nx: y\n---\n\nbody\n"
    );
    assert_eq!(
        described("---\nname: one\ndescription: old\nx: y\n---\n\nbody\n", " "),
        "---\nname: one\nx: y\n---\n\nbody\n"
    );
    assert_eq!(
        described("just a body\n", "new"),
        "---\nname: one\ndescription: new\n---\n\njust a body\n"
    );
    assert_eq!(
        described("---\n# nothing yet\n---\nbody\n", "new"),
        "---\n# nothing yet\nname: one\ndescription: new\n---\n\nbody\n"
    );
}

#[test]
fn layouts_that_cannot_be_edited_are_refused() {
    for before in [
        "---\n{name: one, description: old, extra: [1, two, {k: v}]}\n---\nb\n",
        "---\n? name\n: one\n? description\n: old\n---\nb\n",
        "---\nname: one\ndescription: first\ndescription: old\n---\nb\n",
        "---\n- a list\n---\nb\n",
    ] {
        let fixture = Fixture::new();
        fixture.put("one/SKILL.md", before);
        let patch = SkillPatch {
            description: Some("new".to_owned()),
            ..SkillPatch::default()
        };
        let error = fixture.store.update("one", &patch).expect_err("refused");
        assert!(error.to_string().contains("cannot be edited"), "{error}");
        assert_eq!(fixture.text("one/SKILL.md"), before);
    }
}

#[test]
fn strings_that_look_like_something_else_stay_strings() {
    for value in [
        "yes",
        "null",
        "~",
        "123",
        "1.5",
        "0x1f",
        "1:30",
        "2026-11-16",
        "- a",
        "? b",
        "a: b",
        "a #b",
        "#c",
        "'q'",
        "\"dq\"",
        "[x]",
        "{y}",
        "&a",
        "*b",
        "!t",
        "%d",
        "@e",
        "`f",
        "|",
        ">",
        "trailing:",
        "tab\there",
        "line\nbreak",
        "nul\0",
        "\u{85}",
        "\u{2028}",
        "\u{feff}bom",
        "---",
        "...",
        "=",
        "<<",
        "\u{1f389}",
        "ключ: значение",
        "back\\slash",
        "\r",
        "0o17",
        "y",
        ".inf",
        "\u{7f}",
        "\u{fffe}",
        "a\u{a0}b",
    ] {
        let fixture = Fixture::new();
        let skill = fixture
            .store
            .create(&NewSkill {
                name: "one".to_owned(),
                display_name: Some(format!("x{value}x")),
                description: Some(format!("{value}.")),
                instructions: Some(value.to_owned()),
                ..NewSkill::default()
            })
            .expect("created");
        assert_eq!(skill.display_name, format!("x{value}x"), "{value:?}");
        let blanks = |c: char| c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}');
        assert_eq!(skill.description, format!("{value}.").trim_matches(blanks));
    }
}

#[test]
fn an_entry_file_in_small_letters_is_followed_by_one_in_capitals() {
    let fixture = Fixture::new();
    fixture.put("one/skill.md", "---\nname: one\nlicense: MIT\n---\nbody\n");
    let patch = SkillPatch {
        description: Some("d".to_owned()),
        ..SkillPatch::default()
    };
    let skill = fixture.store.update("one", &patch).expect("updated");
    assert_eq!(skill.entry_file, "SKILL.md");
    assert!(fixture.text("one/SKILL.md").contains("license: MIT"));
    let codes: Vec<&str> = skill.warnings.iter().map(|it| it.code.as_str()).collect();
    assert!(codes.contains(&"two_entry_files"), "{codes:?}");
}
