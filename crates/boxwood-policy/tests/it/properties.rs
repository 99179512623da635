//! Properties of every request.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use boxwood_api::{LockableField, MountMode, MountSpec, Network, SessionId, SpecRequest};
use boxwood_policy::{
    BLOCKED, Denial, Facts, Maxima, OpenedPath, Origin, OwnDirectory, PolicyRules, Profile,
    ProfileConfig, Profiles, admit,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::requests::opened;

static DESCRIPTOR: LazyLock<OpenedPath> = LazyLock::new(|| opened("/", "/"));

/// Many facts around one descriptor: policy never uses it.
pub(crate) fn opened_as(given: &str, real: &str) -> OpenedPath {
    OpenedPath {
        given: given.to_owned(),
        real_path: PathBuf::from(real),
        ..DESCRIPTOR.clone()
    }
}

pub(crate) fn origins() -> impl Strategy<Value = Origin> {
    prop_oneof![
        Just(Origin::Operator),
        Just(Origin::Client),
        Just(Origin::LangBotPlatform),
        Just(Origin::Hosting)
    ]
}

pub(crate) fn modes() -> impl Strategy<Value = MountMode> {
    prop_oneof![
        Just(MountMode::None),
        Just(MountMode::Ro),
        Just(MountMode::Rw)
    ]
}

fn networks() -> impl Strategy<Value = Network> {
    prop_oneof![Just(Network::Off), Just(Network::On)]
}

fn lockable() -> impl Strategy<Value = LockableField> {
    proptest::sample::select(vec![
        LockableField::Image,
        LockableField::Network,
        LockableField::TimeoutSec,
        LockableField::HostPathMode,
        LockableField::Cpus,
        LockableField::MemoryMb,
        LockableField::PidsLimit,
        LockableField::ReadOnlyRootfs,
        LockableField::WorkspaceQuotaMb,
        LockableField::Backend,
    ])
}

prop_compose! {
    pub(crate) fn numbers()(
        timeout_sec in option::of(1..5000u64),
        cpus in option::of(0.1..16.0f64),
        memory_mb in option::of(32..10_000u64),
        pids_limit in option::of(1..2000u64),
        workspace_quota_mb in option::of(0..5000u64),
        network in option::of(networks()),
        host_path_mode in option::of(modes()),
        read_only_rootfs in option::of(any::<bool>()),
        image in option::of("[a-z]{0,6}"),
        backend in option::of("[a-z]{0,6}"),
        profile in option::of(proptest::sample::select(vec![
            "default", "offline_readonly", "network_basic", "network_extended", "operators",
        ])),
    ) -> SpecRequest {
        SpecRequest {
            session_id: SessionId::new("any").ok(),
            timeout_sec, cpus, memory_mb, pids_limit, workspace_quota_mb, network,
            host_path_mode, read_only_rootfs, image, backend,
            profile: profile.map(str::to_owned),
            ..SpecRequest::default()
        }
    }
}

prop_compose! {
    fn maxima()(
        timeout_sec in option::of(30..1000u64),
        cpus in option::of(1.0..8.0f64),
        memory_mb in option::of(512..4096u64),
        pids_limit in option::of(128..1000u64),
        workspace_quota_mb in option::of(1..1000u64),
    ) -> Maxima {
        Maxima { timeout_sec, cpus, memory_mb, pids_limit, workspace_quota_mb }
    }
}

prop_compose! {
    pub(crate) fn rules()(own in maxima(), hard in maxima(), locked in vec(lockable(), 0..10), backend in option::of("[a-z]{1,6}")) -> PolicyRules {
        let table = ProfileConfig {
            backend,
            max_timeout_sec: own.timeout_sec,
            max_cpus: own.cpus,
            max_memory_mb: own.memory_mb,
            max_pids_limit: own.pids_limit,
            max_workspace_quota_mb: own.workspace_quota_mb,
            locked: Some(locked),
            ..ProfileConfig::default()
        };
        let tables = [("operators".to_owned(), table)].into();
        PolicyRules {
            profiles: Profiles::new(&tables, Some("operators")).expect("the maxima are sensible"),
            maxima: hard,
            ..PolicyRules::default()
        }
    }
}

fn profile_of<'a>(request: &SpecRequest, rules: &'a PolicyRules) -> &'a Profile {
    match &request.profile {
        Some(name) => rules.profiles.get(name).expect("a known profile"),
        None => rules.profiles.default_profile(),
    }
}

fn within<T: PartialOrd + Copy>(value: T, max: &[Option<T>]) -> bool {
    max.iter().flatten().all(|max| value <= *max)
}

/// Spellings of one path that mean the same to the kernel.
fn spelled(path: &'static str) -> impl Strategy<Value = String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let noise = proptest::sample::select(vec!["/", "//", "/./", "/x/../", "///././", "/../a/../"]);
    let plain = proptest::sample::select(vec!["/", "//", "/./", "/x/../", "/y/z/../../"]);
    let end = proptest::sample::select(vec!["", "/", "//", "/.", "/./", "/x/.."]);
    let space = proptest::sample::select(vec!["", " ", "\t", "\n"]);
    (noise, vec(plain, parts.len()), end, space).prop_map(move |(first, joints, end, space)| {
        let mut text = String::from(space);
        text.push_str(first);
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                text.push_str(joints[index]);
            }
            text.push_str(part);
        }
        text.push_str(end);
        text.push_str(space);
        text
    })
}

/// A forbidden path: an entry, something below one, or something that contains one.
fn forbidden() -> impl Strategy<Value = String> {
    let mut paths: Vec<&'static str> = BLOCKED.to_vec();
    paths.extend([
        "/",
        "/var",
        "/var/lib",
        "/var/snap",
        "/etc/ssh",
        "/proc/1/root",
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/root/.ssh",
        "/srv/own/state",
        "/srv/own",
        "/srv",
        "/srv/own/state/x",
    ]);
    proptest::sample::select(paths).prop_flat_map(spelled)
}

fn open_rules() -> PolicyRules {
    PolicyRules {
        allowed_roots: vec!["/".into()],
        blocked: vec!["/srv/own/state".into()],
        ..PolicyRules::default()
    }
}

fn is_blocked<T>(outcome: &Result<T, Denial>) -> bool {
    matches!(outcome, Err(Denial::Blocked { .. }))
}

proptest! {
    #[test]
    fn admission_never_exceeds_the_profile(request in numbers(), rules in rules(), origin in origins()) {
        let Ok(admission) = admit(&request, origin, &Facts::default(), &rules) else { return Ok(()) };
        let limits = admission.spec.limits();
        let hard = &rules.maxima;
        // The platform's own profile stands in where it names none of ours.
        let by_platform = origin == Origin::LangBotPlatform && request.profile.is_none();
        let unbounded = Maxima::default();
        let soft = if by_platform { &unbounded } else { &profile_of(&request, &rules).max };
        prop_assert!(within(limits.cpus, &[soft.cpus, hard.cpus]));
        prop_assert!(within(limits.memory_mb, &[soft.memory_mb, hard.memory_mb]));
        prop_assert!(within(limits.pids, &[soft.pids_limit, hard.pids_limit]));
        // An install has the time of its server's start, which only the operator bounds.
        let soft_timeout = soft.timeout_sec.filter(|_| origin != Origin::Hosting);
        prop_assert!(within(admission.exec.timeout().as_secs(), &[soft_timeout, hard.timeout_sec]));
        let quotas = [soft.workspace_quota_mb, hard.workspace_quota_mb];
        prop_assert!(within(limits.workspace_quota_mb, &quotas));
        if quotas.iter().any(Option::is_some) {
            prop_assert!(limits.workspace_quota_mb > 0, "zero would be no bound at all");
        }
    }

    #[test]
    fn locked_fields_come_from_the_profile(request in numbers(), rules in rules()) {
        let rules = PolicyRules { maxima: Maxima::default(), ..rules };
        let Ok(admission) = admit(&request, Origin::Client, &Facts::default(), &rules) else { return Ok(()) };
        let (spec, profile) = (&admission.spec, profile_of(&request, &rules));
        for lock in &profile.locked {
            let same = match lock {
                LockableField::Image => spec.image_text() == profile.image,
                LockableField::Network => spec.network() == profile.network,
                LockableField::TimeoutSec => admission.exec.timeout().as_secs() == profile.timeout_sec,
                LockableField::HostPathMode => spec.host_path_mode() == profile.host_path_mode,
                LockableField::Cpus => spec.limits().cpus.to_bits() == profile.cpus.to_bits(),
                LockableField::MemoryMb => spec.limits().memory_mb == profile.memory_mb,
                LockableField::PidsLimit => spec.limits().pids == profile.pids_limit,
                LockableField::ReadOnlyRootfs => spec.read_only_root() == profile.read_only_rootfs,
                LockableField::Backend => spec.backend() == profile.backend.as_deref(),
                LockableField::WorkspaceQuotaMb => {
                    let max = profile.max.workspace_quota_mb.unwrap_or(0);
                    spec.limits().workspace_quota_mb == max
                }
            };
            prop_assert!(same, "{:?} of {}", lock, profile.name);
        }
    }

    #[test]
    fn what_was_asked_within_bounds_is_given(request in numbers()) {
        let request = SpecRequest { profile: Some("network_extended".to_owned()), ..request };
        let admission = admit(&request, Origin::Client, &Facts::default(), &PolicyRules::default())
            .expect("only the timeout has a maximum, and it is clamped");
        let limits = admission.spec.limits();
        prop_assert_eq!(limits.memory_mb, request.memory_mb.unwrap_or(1024));
        prop_assert_eq!(limits.pids, request.pids_limit.unwrap_or(256));
        prop_assert_eq!(admission.spec.network(), request.network.unwrap_or(Network::On));
        prop_assert_eq!(
            admission.exec.timeout().as_secs(),
            request.timeout_sec.unwrap_or(30).min(300)
        );
    }

    #[test]
    fn no_spelling_of_a_forbidden_path_is_admitted(
        path in forbidden(),
        origin in origins(),
        mode in modes(),
        innocent in "/data/[a-z]{1,5}",
    ) {
        let rules = open_rules();
        let normal = boxwood_policy::normalize(Path::new(path.trim())).expect("absolute");
        let normal = normal.to_str().expect("text");
        // The caller spells it out, and the daemon could or could not open it; or the spelling is
        // innocent and a symlink leads there.
        let cases = [
            (path.as_str(), Some(normal)),
            (path.as_str(), None),
            (path.as_str(), Some(innocent.as_str())),
            (innocent.as_str(), Some(normal)),
            (innocent.as_str(), Some(path.trim())),
        ];
        for (given, real) in cases {
            let fact = real.map(|real| opened_as(given, real));
            let first = SpecRequest {
                session_id: SessionId::new("any").ok(),
                host_path: Some(given.to_owned()),
                host_path_mode: Some(mode),
                ..SpecRequest::default()
            };
            let facts = Facts { host_path: fact.clone(), ..Facts::default() };
            prop_assert!(is_blocked(&admit(&first, origin, &facts, &rules)), "{:?}", given);

            // A mount of mode `none` is never opened, so only its spelling can be judged.
            if mode == MountMode::None && given == innocent {
                continue;
            }
            let second = SpecRequest {
                session_id: SessionId::new("any").ok(),
                extra_mounts: vec![MountSpec {
                    host_path: given.to_owned(),
                    mount_path: "/mnt/x".to_owned(),
                    mode,
                }],
                ..SpecRequest::default()
            };
            let facts = Facts { extra_mounts: fact.into_iter().collect(), ..Facts::default() };
            prop_assert!(is_blocked(&admit(&second, origin, &facts, &rules)), "{:?}", given);
        }
    }

    #[test]
    fn nothing_outside_the_roots_is_admitted(
        given in "/[a-z]{1,3}(/[a-z.]{1,3}){0,4}",
        real in "/[a-z]{1,3}(/[a-z.]{1,3}){0,4}",
    ) {
        let rules = PolicyRules { allowed_roots: vec!["/a/b".into()], ..PolicyRules::default() };
        let request = SpecRequest {
            session_id: SessionId::new("any").ok(),
            host_path: Some(given.clone()),
            ..SpecRequest::default()
        };
        let facts = Facts { host_path: Some(opened_as(&given, &real)), ..Facts::default() };
        if admit(&request, Origin::Client, &facts, &rules).is_ok() {
            let real = boxwood_policy::normalize(Path::new(&real)).expect("absolute");
            prop_assert!(real.starts_with("/a/b"));
        }
    }

    #[test]
    fn admitted_targets_are_normal_and_apart(targets in vec("(/(\\.\\.|\\.|[a-c]|tmp|etc|workspace|)){1,4}", 0..6)) {
        let request = SpecRequest {
            session_id: SessionId::new("any").ok(),
            extra_mounts: targets.iter().map(|target| MountSpec {
                host_path: "/data/x".to_owned(),
                mount_path: target.clone(),
                mode: MountMode::Ro,
            }).collect(),
            ..SpecRequest::default()
        };
        let facts = Facts {
            extra_mounts: targets.iter().map(|_| opened_as("/data/x", "/data/x")).collect(),
            ..Facts::default()
        };
        let Ok(admission) = admit(&request, Origin::Operator, &facts, &PolicyRules::default()) else { return Ok(()) };
        let mounts = admission.spec.extra_mounts();
        for (index, mount) in mounts.iter().enumerate() {
            let path = mount.mount_path();
            let normal = boxwood_policy::normalize_text(path);
            prop_assert_eq!(normal.as_deref(), Some(path));
            prop_assert!(path != "/" && path != "/tmp" && !Path::new(path).starts_with("/etc"));
            prop_assert!(!Path::new("/workspace").starts_with(path));
            for later in &mounts[index + 1..] {
                prop_assert!(!Path::new(path).starts_with(later.mount_path()), "inner before outer");
            }
        }
    }

    #[test]
    fn judging_never_panics(
        request in numbers(),
        texts in vec(option::of("\\PC{0,30}|/{0,3}[a-z./\u{0}]{0,20}"), 4),
        extra in vec(("\\PC{0,20}|/[a-z./]{0,12}", "\\PC{0,20}|/[a-z./]{0,12}", modes()), 0..4),
        wild in (any::<u64>(), any::<f64>(), any::<u64>()),
        facts in vec(("\\PC{0,20}", "\\PC{0,20}"), 0..4),
        names in vec("\\PC{0,20}|[a-z./]{0,6}", 0..3),
        origin in origins(),
        rules in rules(),
    ) {
        let facts_of = |paths: &[(String, String)]| -> Vec<OpenedPath> {
            paths.iter().map(|(given, real)| opened_as(given, real)).collect()
        };
        let request = SpecRequest {
            workdir: texts[0].clone(),
            mount_path: texts[1].clone(),
            host_path: texts[2].clone(),
            cmd: texts[3].clone().unwrap_or_default(),
            timeout_sec: Some(wild.0),
            cpus: Some(wild.1),
            memory_mb: Some(wild.2),
            extra_mounts: extra.into_iter().map(|(host_path, mount_path, mode)| MountSpec { host_path, mount_path, mode }).collect(),
            skills: names,
            ..request
        };
        let given = Facts { host_path: facts_of(&facts).pop(), extra_mounts: facts_of(&facts), skills: facts_of(&facts), own: facts_of(&facts).into_iter().map(|source| OwnDirectory { mount_path: source.given.clone(), source, mode: MountMode::Rw }).collect() };
        for facts in [Facts::default(), given] {
            if let Err(denial) = admit(&request, origin, &facts, &rules) {
                let _ = (denial.to_string(), denial.code(), denial.hint());
            }
        }
    }
}
