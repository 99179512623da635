"""Artifact mounts: read-only packages verified against their digest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from langbot_plugin.artifact import build_tree_manifest
from langbot_plugin.box.actions import LangBotToBoxAction as Action
from langbot_plugin.box.errors import BoxError, BoxValidationError
from langbot_plugin.box.models import ARTIFACT_MOUNT_ROOT, BoxMountSpec

from support.workspace import Workspace

pytestmark = pytest.mark.better('packages are looked at in directory, on the native backend')


@pytest.fixture
def package(tmp_path: Path) -> Path:
    tree = tmp_path / 'package'
    (tree / 'scripts').mkdir(parents=True)
    (tree / 'SKILL.md').write_text('# A skill\n')
    (tree / 'scripts' / 'run ü.sh').write_text('echo ran\n')
    (tree / 'scripts' / 'run ü.sh').chmod(0o755)
    return tree


def mount_of(package: Path) -> BoxMountSpec:
    digest, manifest = build_tree_manifest(str(package), max_files=100, max_total_bytes=10_000)
    listed = package.with_suffix('.json')
    listed.write_text(json.dumps(manifest))
    return BoxMountSpec(
        host_path=str(package),
        mount_path=f'{ARTIFACT_MOUNT_ROOT}/{digest[7:]}',
        mode='ro',
        content_digest=digest,
        manifest_path=str(listed),
    )


async def test_a_package_is_mounted_read_only(workspace: Workspace, package: Path):
    mount = mount_of(package)
    result = await workspace.run(
        f"cat {mount.mount_path}/SKILL.md; sh '{mount.mount_path}/scripts/run ü.sh'; "
        f'echo x > {mount.mount_path}/new; echo rc=$?',
        extra_mounts=[mount],
    )
    assert result.stdout.splitlines()[:2] == ['# A skill', 'ran']
    assert result.stdout.endswith('rc=2') or result.stdout.endswith('rc=1')
    assert not (package / 'new').exists()


async def test_a_package_is_added_to_an_existing_session(workspace: Workspace, package: Path):
    await workspace.run('echo kept > /tmp/f')
    mount = mount_of(package)
    result = await workspace.run(
        f'cat /tmp/f {mount.mount_path}/SKILL.md', extra_mounts=[mount]
    )
    assert result.stdout == 'kept\n# A skill'


async def test_a_package_that_was_changed_is_refused(workspace: Workspace, package: Path):
    mount = mount_of(package)
    (package / 'SKILL.md').write_text('# Another\n')
    with pytest.raises(BoxError, match='Artifact source changed: SKILL.md'):
        await workspace.run('true', extra_mounts=[mount])
    assert await workspace.sessions() == []


async def test_a_changed_manifest_is_rejected(workspace: Workspace, package: Path):
    mount = mount_of(package)
    other = mount_of(package)
    Path(other.manifest_path).write_text('{"algorithm": "sha256-tree-v1"}')
    with pytest.raises(BoxError, match='Immutable artifact preparation failed: Artifact manifest'):
        await workspace.run('true', extra_mounts=[mount])


async def test_a_wrong_digest_is_rejected(workspace: Workspace, package: Path):
    mount = mount_of(package)
    wrong = mount.model_copy(
        update={
            'content_digest': 'sha256:' + '0' * 64,
            'mount_path': f'{ARTIFACT_MOUNT_ROOT}/' + '0' * 64,
        }
    )
    with pytest.raises(BoxError, match='does not match content_digest'):
        await workspace.run('true', extra_mounts=[wrong])


async def test_the_artifact_directory_is_reserved(workspace: Workspace, package: Path):
    data = workspace.spec('true').model_dump(mode='json')
    data['extra_mounts'] = [
        {'host_path': str(package), 'mount_path': f'{ARTIFACT_MOUNT_ROOT}/x', 'mode': 'ro'}
    ]
    with pytest.raises(BoxValidationError, match='Artifact paths require a read-only digest'):
        await workspace.call(Action.EXEC, data)


@pytest.mark.parametrize('path', ['/etc', '/proc', '/root', '/'])
async def test_blocked_directories_stay_blocked(workspace: Workspace, path: str):
    mount = {'host_path': path, 'mount_path': '/mnt/x', 'mode': 'ro'}
    with pytest.raises(BoxValidationError, match='extra_mounts'):
        await workspace.run('true', extra_mounts=[mount])
