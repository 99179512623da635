//! How Python servers are installed.
//!
//! Comes in: what a launcher was told, and the directory of the host it works on. Goes out: an install
//! script that ends with a program. Never here: whether uv or pip does it; the script finds out in the box.

use std::path::{Path, PathBuf};

use super::asked::Asked;
use super::infer::nearest;
use super::package::plain;
use super::paths::real;
use super::project::{PythonKind, PythonProject, ScriptNeeds};
use super::quote::quote;
use super::recipe::{Recipe, call};
use super::scene::{Drawn, Scene};
use super::uv::{ProjectRun, PythonTool, Target};
use super::{CACHE, LaunchError, host_venv, tree};

const MANIFESTS: [&str; 4] = [
    "pyproject.toml",
    "requirements.txt",
    "setup.py",
    "setup.cfg",
];
const PROGRAMS: &str = r#""$mcp/venv/bin""#;

/// `uvx` and its like.
pub(super) fn tool(tool: &PythonTool, scene: &Scene<'_>) -> Result<Drawn, LaunchError> {
    let mut recipe = Recipe::new("python-tool", &tool.from);
    let from = scene.requirement(&tool.from, &mut recipe)?;
    let mut packages = vec![from];
    packages.extend(requirements(&tool.how.with, scene, &mut recipe)?);
    packages.extend(scene.with()?);
    let python = tool.how.python.as_deref().unwrap_or_default();
    recipe.key.add_all("package", &packages);
    recipe.key.add_all("option", &tool.how.options);
    recipe.key.add("python", python);
    recipe.key.add("program", &tool.program);
    recipe.line(format!(
        "say {}",
        quote(&format!("installing {}", tool.from))
    ));
    recipe.call("make_venv", [python]);
    let install = match tool.how.python {
        Some(_) => "install_python",
        None => "install_tool",
    };
    recipe.call(install, tool.how.options.iter().chain(&packages));
    recipe.call("python_program", [&tool.program]);
    recipe.line(format!(r#"finish "$program" {PROGRAMS}"#));
    Ok(Drawn::new(
        format!("{CACHE}/venv/bin/{}", tool.program),
        scene.words(&tool.args),
        Some(recipe),
    ))
}

/// `-e` and `-r` keep their paths.
fn requirements(
    words: &[String],
    scene: &Scene<'_>,
    recipe: &mut Recipe,
) -> Result<Vec<String>, LaunchError> {
    words
        .iter()
        .map(|word| {
            if word == "-e" || word == "-r" {
                Ok(word.clone())
            } else {
                scene.requirement(word, recipe)
            }
        })
        .collect()
}

/// A script, a module or a program of a project.
pub(super) fn run(
    run: &ProjectRun,
    asked: &Asked,
    scene: &Scene<'_>,
) -> Result<Drawn, LaunchError> {
    let directory = run.directory.as_deref().map(|path| scene.on_host(path));
    let script = script(run, directory.as_deref(), scene);
    let project = if run.has_project {
        project(run, directory.as_deref(), script.as_deref(), asked, scene)
    } else {
        None
    };
    let mut recipe = Recipe::new("python-run", &what(run, project.as_deref()));
    let mut with = requirements(&run.with, scene, &mut recipe)?;
    with.extend(scene.with()?);
    recipe.key.add_all("option", &run.options);
    recipe.key.add_all("extra", &run.extras);
    recipe.key.add_all("by-lock", &run.by_lock);
    recipe.key.add_all("sync", &run.sync);
    // Where the box has no uv, what is got without a lock is not what the lock says.
    if run.is_locked {
        recipe.key.add("locked", "");
    }

    let declared = match &project {
        Some(directory) => PythonProject::read(directory, &run.extras)?,
        None => None,
    };
    let own_needs = match (&declared, &script) {
        (None, Some(script)) => ScriptNeeds::read(script)?,
        _ => None,
    };
    let wanted = run
        .python
        .clone()
        .or_else(|| declared.as_ref()?.requires_python.clone())
        .or_else(|| own_needs.as_ref()?.requires_python.clone())
        .map(|wanted| plain(&wanted))
        .transpose()?
        .unwrap_or_default();
    recipe.key.add("python", &wanted);

    let mut has_venv = true;
    if let (Some(declared), Some(directory)) = (&declared, &project) {
        install_project(declared, directory, run, &wanted, &with, scene, &mut recipe)?;
    } else {
        if let Some(needs) = &own_needs {
            with.extend(needs.dependencies.iter().cloned());
        } else if let Some(venv) = &asked.venv
            // Elsewhere nobody judges whether whoever asks may see what is there.
            && scene.in_box(venv).is_some()
        {
            with.extend(host_venv::packages(venv));
        }
        if with.is_empty() {
            has_venv = false;
        } else {
            recipe.call("make_venv", [&wanted]);
            recipe.call("install_python", run.options.iter().chain(&with));
        }
    }
    recipe.key.add_all("with", &with);
    Ok(drawn(run, directory, has_venv, &wanted, recipe, scene))
}

/// The end of the script, and what is started.
fn drawn(
    run: &ProjectRun,
    directory: Option<PathBuf>,
    has_venv: bool,
    wanted: &str,
    mut recipe: Recipe,
    scene: &Scene<'_>,
) -> Drawn {
    let path = if has_venv { PROGRAMS } else { "" };
    let command = match &run.target {
        Target::Python if has_venv => {
            recipe.line(format!(r#"finish "$mcp/venv/bin/python" {path}"#));
            recipe.key.add("target", "python");
            "python".to_owned()
        }
        // Nothing has to be installed and nothing looked for.
        Target::Python if run.interpreter.is_some() => {
            let command = run.interpreter.unwrap_or("python3").to_owned();
            return Drawn::new(command, scene.words(&run.args), None);
        }
        Target::Python => {
            let version = if wanted.starts_with("3.") { wanted } else { "" };
            recipe.call("only_python", [version]);
            recipe.line(r#"finish "$program""#);
            recipe.key.add("target", "only-python");
            "python".to_owned()
        }
        Target::Program(name) if name.contains('/') => {
            recipe.line(format!("finish '' {path}"));
            recipe.key.add("target", "path");
            scene.word(name)
        }
        Target::Program(name) => {
            recipe.call("any_program", [name]);
            recipe.line(format!(r#"finish "$program" {path}"#));
            recipe.key.add("target", name);
            name.clone()
        }
    };
    let mut drawn = Drawn::new(command, scene.words(&run.args), Some(recipe));
    drawn.cwd = directory.and_then(|directory| scene.in_box(&directory));
    drawn
}

fn what(run: &ProjectRun, project: Option<&Path>) -> String {
    let name = project.and_then(|path| path.file_name()?.to_str());
    match (name, run.with.first(), &run.target) {
        (Some(name), ..) => name.to_owned(),
        (None, Some(package), _) => package.clone(),
        (None, None, Target::Program(name)) => name.clone(),
        (None, None, Target::Python) => "python".to_owned(),
    }
}

/// The script it is told to run, on the host.
fn script(run: &ProjectRun, directory: Option<&Path>, scene: &Scene<'_>) -> Option<PathBuf> {
    let word = run
        .args
        .iter()
        .map(Path::new)
        .find(|word| word.extension().is_some_and(|ending| ending == "py"))?;
    let base = directory
        .map(Path::to_owned)
        .or_else(|| scene.cwd_on_host())
        .unwrap_or_default();
    let script = base.join(word);
    // Nobody judged what lies elsewhere.
    scene.in_box(&script).map(|_| script)
}

fn project(
    run: &ProjectRun,
    directory: Option<&Path>,
    script: Option<&Path>,
    asked: &Asked,
    scene: &Scene<'_>,
) -> Option<PathBuf> {
    let named = run.project.as_deref().map(|path| scene.on_host(path));
    let starts = [
        named,
        directory.map(Path::to_owned),
        script.and_then(Path::parent).map(Path::to_owned),
        asked
            .venv
            .as_deref()
            .and_then(Path::parent)
            .map(Path::to_owned),
        scene.cwd_on_host(),
    ];
    starts
        .into_iter()
        .flatten()
        .filter_map(|start| nearest(&real(&start), &MANIFESTS))
        .find(|found| scene.in_box(found).is_some())
}

fn install_project(
    project: &PythonProject,
    directory: &Path,
    run: &ProjectRun,
    wanted: &str,
    with: &[String],
    scene: &Scene<'_>,
    recipe: &mut Recipe,
) -> Result<(), LaunchError> {
    let place = scene.in_box(directory).unwrap_or_default();
    scene.show(directory, recipe)?;
    recipe.key.add("project", &place);
    tree::add_manifests(&mut recipe.key, directory)?;
    recipe.line(format!(
        "say {}",
        quote(&format!("installing what {place} needs"))
    ));
    recipe.line(format!("cd {}", quote(&place)));
    recipe.call("make_venv", [wanted]);

    let is_built = project.kind == PythonKind::Package;
    // A copy is ours to build in, and made anew at every start; what a compiler leaves there would be lost.
    let is_frozen = is_built
        && (scene.is_direct() || !run.is_editable || tree::has_compiled_sources(directory)?);
    if is_frozen {
        recipe.key.add("build", "frozen");
        recipe.counts(&place);
        recipe.call("copy_project", [&place]);
    }
    let extras = if run.extras.is_empty() {
        String::new()
    } else {
        format!("[{}]", run.extras.join(","))
    };
    let more = run.options.iter().chain(with);
    let by_hand = match project.kind {
        PythonKind::Requirements => {
            let list = format!("{place}/requirements.txt");
            call(
                "install_python",
                ["-r", &list].into_iter().chain(more.map(String::as_str)),
            )
        }
        PythonKind::Declared => {
            recipe.declare(&project.dependencies);
            let manifest = format!("{place}/pyproject.toml");
            call(
                "install_declared",
                [manifest.as_str()]
                    .into_iter()
                    .chain(more.map(String::as_str)),
            )
        }
        PythonKind::Package if is_frozen => {
            let words = call("", more);
            format!(r#"install_python "$tmp/source"{} {words}"#, quote(&extras))
        }
        PythonKind::Package => {
            let source = format!("{place}{extras}");
            call(
                "install_python",
                ["-e", &source].into_iter().chain(more.map(String::as_str)),
            )
        }
    };
    // What is asked of a lock is not guessed without one.
    let asked_of_lock = run
        .by_lock
        .first()
        .map(String::as_str)
        .or(run.is_locked.then_some("--locked"));
    if let Some(option) = asked_of_lock
        && !project.has_lock
    {
        return Err(LaunchError::NoLock {
            option: option.to_owned(),
            path: directory.to_owned(),
        });
    }
    if project.has_lock {
        recipe.line(r#"if [ -n "$uv" ]; then"#);
        let options = run.extras.iter().flat_map(|extra| ["--extra", extra]);
        let options = options.chain(run.by_lock.iter().chain(&run.sync).map(String::as_str));
        if is_frozen {
            recipe.line(call(r#"sync_project "$tmp/source" --no-editable"#, options));
        } else {
            recipe.line(call(
                "sync_project",
                [place.as_str()].into_iter().chain(options),
            ));
        }
        if !with.is_empty() {
            recipe.call("install_python", run.options.iter().chain(with));
        }
        recipe.line("else");
        recipe.line(match asked_of_lock {
            Some(option) => call(
                "fail",
                [format!("`{option}` needs uv, and this box has none: choose an image that has it in box.image, or install uv on the host")],
            ),
            None => by_hand,
        });
        recipe.line("fi");
    } else {
        recipe.line(by_hand);
    }
    Ok(())
}
