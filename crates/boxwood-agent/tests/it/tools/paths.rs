use std::collections::BTreeSet;

use boxwood_agent::paths::{
    PathError, SkillAccess, ToolPath, check_skill, mentioned_skills, resolve, resolve_readable,
};
use proptest::prelude::*;

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn workspace(path: &str) -> ToolPath {
    ToolPath::Workspace {
        path: path.to_owned(),
    }
}

#[test]
fn detours_are_taken_out() {
    for (path, expected) in [
        ("/workspace", "/workspace"),
        ("/workspace/", "/workspace"),
        ("/workspace//a///b/", "/workspace/a/b"),
        ("/workspace/./a/../b", "/workspace/b"),
        ("/workspace/a/..", "/workspace"),
        ("/workspace/...", "/workspace/..."),
        ("/workspace/.skillset/a", "/workspace/.skillset/a"),
        ("/workspace/a/.skills/b", "/workspace/a/.skills/b"),
        ("/workspace/a\nb", "/workspace/a\nb"),
    ] {
        assert_eq!(resolve(path), Ok(workspace(expected)), "{path}");
    }
}

#[test]
fn paths_elsewhere_are_refused() {
    for path in [
        "",
        "/",
        "a",
        "workspace/a",
        "/etc/passwd",
        "/workspaces/a",
        "/workspace.txt",
        "//workspace/a",
        "/tmp/../workspace/a",
        "/tmp/.boxwood/output/7.stdout",
    ] {
        assert_eq!(resolve(path), Err(PathError::Outside), "{path}");
    }
    assert_eq!(
        PathError::Outside.to_string(),
        "Path must be under /workspace."
    );
}

#[test]
fn paths_that_climb_out_are_refused_even_when_they_come_back() {
    for path in [
        "/workspace/..",
        "/workspace/../etc/passwd",
        "/workspace/a/../../etc",
        "/workspace/../workspace/a",
        "/workspace/.skills/../../x",
    ] {
        assert_eq!(resolve(path), Err(PathError::Escapes), "{path}");
    }
    assert_eq!(
        PathError::Escapes.to_string(),
        "Path escapes the workspace boundary."
    );
}

#[test]
fn paths_that_no_kernel_takes_are_refused() {
    assert_eq!(resolve("/workspace/a\0b"), Err(PathError::Nul));
    assert_eq!(
        resolve(&format!("/workspace/{}", "a".repeat(256))),
        Err(PathError::TooLong)
    );
    assert_eq!(
        resolve(&format!("/workspace{}", "/a".repeat(3_000))),
        Err(PathError::TooLong)
    );
    assert!(resolve(&format!("/workspace/{}", "a".repeat(255))).is_ok());
}

#[test]
fn a_skills_package_is_told_apart_from_the_workspace() {
    let skill = |name: &str, tail: &str, path: &str| {
        Ok(ToolPath::Skill {
            name: name.to_owned(),
            tail: tail.to_owned(),
            path: path.to_owned(),
        })
    };
    assert_eq!(
        resolve("/workspace/.skills/pdf/scripts/run.py"),
        skill(
            "pdf",
            "scripts/run.py",
            "/workspace/.skills/pdf/scripts/run.py"
        )
    );
    assert_eq!(
        resolve("/workspace/.skills//pdf/"),
        skill("pdf", "", "/workspace/.skills/pdf")
    );
    // By where it leads, not by how it is written.
    assert_eq!(
        resolve("/workspace/x/../.skills/pdf/a"),
        skill("pdf", "a", "/workspace/.skills/pdf/a")
    );
    assert_eq!(
        resolve("/workspace/.skills/pdf/../../a"),
        Ok(workspace("/workspace/a"))
    );
    for bare in [
        "/workspace/.skills",
        "/workspace/.skills/",
        "/workspace/.skills/a/..",
    ] {
        assert_eq!(resolve(bare), Err(PathError::NoSkillName), "{bare}");
    }
    assert_eq!(
        PathError::NoSkillName.to_string(),
        "Path must include a skill name under /workspace/.skills/<skill-name>."
    );
}

#[test]
fn kept_outputs_can_be_read_and_nothing_beside_them() {
    assert_eq!(
        resolve_readable("/tmp/.boxwood/output//7.stdout"),
        Ok(ToolPath::KeptOutput {
            path: "/tmp/.boxwood/output/7.stdout".to_owned()
        })
    );
    assert_eq!(
        resolve_readable("/tmp/.boxwood/output/../x"),
        Err(PathError::Escapes)
    );
    assert_eq!(
        resolve_readable("/tmp/.boxwood/outputs"),
        Err(PathError::Outside)
    );
    assert_eq!(resolve_readable("/tmp/x"), Err(PathError::Outside));
    assert_eq!(
        resolve_readable("/workspace/a"),
        Ok(workspace("/workspace/a"))
    );
}

#[test]
fn a_visible_skill_may_be_looked_at_and_an_activated_one_used() {
    let (activated, visible) = (set(&["on"]), set(&["on", "seen"]));
    let may = |name, access| check_skill(name, access, &activated, &visible).is_ok();
    assert!(may("on", SkillAccess::Use) && may("on", SkillAccess::Read));
    assert!(may("seen", SkillAccess::Read) && !may("seen", SkillAccess::Use));
    assert!(!may("hidden", SkillAccess::Read) && !may("hidden", SkillAccess::Use));
    let refusal = |name: &str, activated: &[&str], visible: &[&str]| {
        check_skill(name, SkillAccess::Use, &set(activated), &set(visible))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refusal("x", &["b", "a"], &["a", "b", "c"]),
        "Skill \"x\" is not available at this path. Activated skills: a, b. Visible skills: a, b, c"
    );
    assert_eq!(
        refusal("x", &[], &[]),
        "Skill \"x\" is not available at this path. Activated skills: none. Visible skills: none"
    );
}

#[test]
fn the_skills_that_a_command_names_are_found() {
    for (command, expected) in [
        ("ls /workspace", vec![]),
        ("ls /workspace/.skills/", vec![]),
        ("python /workspace/.skills/pdf/run.py", vec!["pdf"]),
        (
            "cat '/workspace/.skills/a_b-1'; cd /workspace/.skills/z/x; ls /workspace/.skills/z",
            vec!["a_b-1", "z"],
        ),
        (
            "/workspace/.skills/größe/run; /workspace/.skills/技能/run.py",
            vec!["größe", "技能"],
        ),
    ] {
        assert_eq!(mentioned_skills(command), set(&expected), "{command}");
    }
}

proptest! {
    #[test]
    fn no_path_ever_leaves(path in "(/workspace|/tmp/.boxwood/output)?(/(\\.\\.|\\.|a|\\.skills|pdf|é|)){0,9}/?|.{0,30}") {
        let Ok(target) = resolve_readable(&path) else { return Ok(()) };
        let found = target.path();
        let inside = |root: &str| found == root || found.strip_prefix(root).is_some_and(|tail| tail.starts_with('/'));
        match &target {
            ToolPath::KeptOutput { .. } => prop_assert!(inside("/tmp/.boxwood/output")),
            ToolPath::Workspace { .. } => {
                prop_assert!(inside("/workspace"));
                prop_assert!(!inside("/workspace/.skills"));
            }
            ToolPath::Skill { name, tail, .. } => {
                let package = format!("/workspace/.skills/{name}");
                let whole = if tail.is_empty() { package } else { format!("{package}/{tail}") };
                prop_assert_eq!(found, whole);
                prop_assert!(!name.is_empty() && !name.contains('/'));
            }
        }
        prop_assert!(!found.contains("//") && !found.contains('\0'));
        prop_assert!(found.split('/').all(|name| name != "." && name != ".."));
        // What was resolved stays as it is.
        prop_assert_eq!(resolve_readable(found), Ok(target.clone()));
    }

    #[test]
    fn every_writable_path_is_readable(path in "/workspace(/(\\.\\.|a|\\.skills)){0,6}|.{0,20}") {
        if let Ok(target) = resolve(&path) {
            prop_assert_eq!(resolve_readable(&path), Ok(target));
        }
    }
}
