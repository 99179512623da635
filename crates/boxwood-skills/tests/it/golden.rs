//! Compares the store with recorded results of LangBot Box. Intended differences are marked `differs` in the data.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use boxwood_skills::{
    NewSkill, PlannedSkill, Skill, SkillError, SkillPatch, SkillStore, ZipRequest, ZipSelection,
};
use serde_json::{Value, json};

use crate::fixture::Fixture;

#[test]
fn front_matter_is_read_as_by_langbot_box() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("golden/front_matter.json")).expect("cases");
    assert!(cases.len() > 90);
    let mut wrong = Vec::new();
    for case in &cases {
        let content = case["content"].as_str().expect("content");
        let fixture = Fixture::new();
        fixture.put("the-dir/SKILL.md", content);
        let listed = fixture.store.list().expect("listed");
        let actual = listed.first().map_or(Value::Null, |skill| {
            json!({
                "name": skill.name,
                "display_name": skill.display_name,
                "description": skill.description,
                "instructions": skill.instructions,
            })
        });
        if (actual != case["skill"]) != case.get("differs").is_some() {
            let problems = fixture.store.problems().expect("problems");
            wrong.push(format!(
                "{content:?}\n LangBot Box {}\n ours {actual} {problems:?}",
                case["skill"]
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn operations_return_what_langbot_box_returns() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("golden/operations.json")).expect("cases");
    assert!(cases.len() > 100);
    let mut wrong = Vec::new();
    for case in &cases {
        let fixture = Fixture::new();
        for (path, content) in case["setup"].as_object().expect("setup") {
            let content = STANDARD
                .decode(content.as_str().expect("text"))
                .expect("base64");
            match path.strip_prefix('@') {
                Some(outside) => fixture.put_outside(outside, content),
                None => fixture.put(path, content),
            };
        }
        let around = fixture.around();
        let root = fixture.root().display().to_string();
        let outside = fixture.outside().display().to_string();
        let args = case["args"].to_string();
        let args = args.replace("{root}", &root).replace("{outside}", &outside);
        let args: Value = serde_json::from_str(&args).expect("arguments");
        let op = case["op"].as_str().expect("operation");
        let answer = match call(&fixture.store, op, &args) {
            Ok(value) => json!({ "ok": value }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        let answer = answer.to_string();
        let answer = answer
            .replace(&root, "{root}")
            .replace(&outside, "{outside}");
        let answer: Value = serde_json::from_str(&answer).expect("answer");
        let same = answer == case["answer"];
        let meant = case.get("differs").is_some();
        if same == meant {
            wrong.push(format!(
                "{op} {}\n LangBot Box {}\n ours {answer}",
                case["args"], case["answer"]
            ));
        }
        let mut tree: Vec<String> = fixture
            .inside()
            .into_keys()
            .filter(|path| !path.is_dir())
            .map(|path| {
                path.strip_prefix(&root)
                    .expect("inside")
                    .display()
                    .to_string()
            })
            .collect();
        tree.sort();
        if json!(tree) != case["tree"] && !meant {
            wrong.push(format!(
                "{op} {}\n LangBot Box {}\n ours {tree:?}",
                case["args"], case["tree"]
            ));
        }
        assert_eq!(fixture.around(), around, "{op} {}", case["args"]);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn text(args: &Value, key: &str) -> Option<String> {
    args.get(key)
        .map(|value| value.as_str().expect("text").to_owned())
}

fn call(store: &SkillStore, op: &str, args: &Value) -> Result<Value, SkillError> {
    let name = text(args, "name").unwrap_or_default();
    let path = text(args, "path").unwrap_or_else(|| ".".to_owned());
    Ok(match op {
        "list" => {
            let mut skills = store.list()?;
            skills.sort_by(|one, other| one.name.cmp(&other.name));
            json!({ "skills": skills.iter().map(shown).collect::<Vec<_>>() })
        }
        "get" => json!({ "skill": store.get(&name)?.as_ref().map(shown) }),
        "create" => {
            let created = store.create(&NewSkill {
                name,
                display_name: text(args, "display_name"),
                description: text(args, "description"),
                instructions: text(args, "instructions"),
                package_root: text(args, "package_root").map(PathBuf::from),
            })?;
            json!({ "skill": shown(&created) })
        }
        "update" => {
            let patch = &args["skill"];
            let updated = store.update(
                &name,
                &SkillPatch {
                    name: text(patch, "name"),
                    display_name: text(patch, "display_name"),
                    description: text(patch, "description"),
                    instructions: text(patch, "instructions"),
                    package_root: text(patch, "package_root").map(PathBuf::from),
                },
            )?;
            json!({ "skill": shown(&updated) })
        }
        "delete" => {
            store.delete(&name)?;
            json!({ "deleted": name })
        }
        "scan" => json!({ "skill": shown(&store.scan(path.as_ref())?) }),
        "list_files" => list_files(store, &name, &path, args)?,
        "read" => {
            let file = store.read_text(&name, &path)?;
            json!({ "skill": { "name": file.skill }, "path": file.path, "content": file.content })
        }
        "write" => {
            let content = text(args, "content").unwrap_or_default();
            let file = store.write(&name, &path, content.as_bytes())?;
            json!({
                "skill": { "name": file.skill },
                "path": file.path,
                "bytes_written": file.bytes_written,
            })
        }
        "preview" => {
            let planned = store.preview_zip(&zip(args), &request(args))?;
            json!({ "skills": planned.iter().map(planned_shown).collect::<Vec<_>>() })
        }
        "install" => {
            let paths = args.get("source_paths").and_then(Value::as_array);
            let selection = ZipSelection {
                source_paths: paths
                    .into_iter()
                    .flatten()
                    .map(|path| path.as_str().expect("text").to_owned())
                    .collect(),
                source_path: text(args, "source_path").unwrap_or_default(),
            };
            let skills = store.install_zip(&zip(args), &request(args), &selection)?;
            json!({ "skills": skills.iter().map(shown).collect::<Vec<_>>() })
        }
        other => panic!("unknown operation {other}"),
    })
}

fn list_files(
    store: &SkillStore,
    name: &str,
    path: &str,
    args: &Value,
) -> Result<Value, SkillError> {
    let hidden = args
        .get("include_hidden")
        .is_some_and(|value| value == true);
    let max = args
        .get("max_entries")
        .and_then(Value::as_u64)
        .unwrap_or(200);
    let listing = store.list_files(name, path, hidden, usize::try_from(max).expect("small"))?;
    let entries: Vec<Value> = listing
        .entries
        .iter()
        .map(|item| {
            json!({
                "path": item.path, "name": item.name, "is_dir": item.is_dir, "size": item.size,
            })
        })
        .collect();
    Ok(json!({
        "skill": { "name": listing.skill },
        "base_path": listing.base_path,
        "entries": entries,
        "truncated": listing.truncated,
    }))
}

fn zip(args: &Value) -> Vec<u8> {
    let encoded = args["zip"].as_str().expect("zip");
    STANDARD.decode(encoded).expect("base64")
}

fn request(args: &Value) -> ZipRequest {
    let usual = ZipRequest::default();
    ZipRequest {
        filename: text(args, "filename").unwrap_or(usual.filename),
        source_subdir: text(args, "source_subdir").unwrap_or(usual.source_subdir),
        target_suffix: text(args, "target_suffix").unwrap_or(usual.target_suffix),
    }
}

fn shown(skill: &Skill) -> Value {
    json!({
        "name": skill.name,
        "display_name": skill.display_name,
        "description": skill.description,
        "instructions": skill.instructions,
        "package_root": skill.package_root,
        "entry_file": skill.entry_file,
    })
}

fn planned_shown(planned: &PlannedSkill) -> Value {
    let mut value = shown(&planned.skill);
    value["source_path"] = json!(planned.source_path);
    value
}
