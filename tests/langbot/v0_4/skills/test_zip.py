"""Skills from zip archives: upload in chunks, preview, installation."""

from __future__ import annotations

import base64
import io
import random
import stat
import zipfile
from pathlib import Path

import pytest
from langbot_plugin.box.errors import BoxValidationError
from langbot_plugin.entities.io.actions.enums import CommonAction
from test_skills import SKILL_KEYS, refused

from support.box import Action, Box


def archive(files: dict[str, str | bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, 'w', compression) as out:
        for name, content in files.items():
            out.writestr(name, content)
    return buffer.getvalue()


ONE = {
    'pack/SKILL.md': '---\nname: one\ndescription: First\n---\n\nDo one.',
    'pack/scripts/run.sh': 'echo run',
}
TWO = {
    'pack/a/SKILL.md': '---\nname: alpha\n---\nA',
    'pack/b/SKILL.md': '---\nname: beta\n---\nB',
    'pack/b/data.txt': 'data',
}


async def test_preview_skill_zip_writes_nothing(box: Box):
    (skill,) = await box.client.preview_skill_zip(archive(ONE), 'my pack.zip')
    assert set(skill) == SKILL_KEYS | {'source_path'}
    assert (skill['name'], skill['description']) == ('one', 'First')
    assert (skill['instructions'], skill['entry_file']) == ('Do one.', 'SKILL.md')
    assert skill['source_path'] == ''
    assert skill['package_root'] == str(box.skills_root / 'my-pack-upload')
    assert await box.client.list_skills() == []
    assert not (box.skills_root / 'my-pack-upload').exists()


async def test_preview_skill_zip_lists_every_skill_by_its_path(box: Box):
    skills = await box.client.preview_skill_zip(archive(TWO), 'two.zip')
    assert [(s['name'], s['source_path'], s['package_root']) for s in skills] == [
        ('alpha', 'a', str(box.skills_root / 'two-a-upload')),
        ('beta', 'b', str(box.skills_root / 'two-b-upload')),
    ]


@pytest.mark.parametrize(
    ('filename', 'suffix', 'target'),
    [
        ('simple.zip', 'upload', 'simple-upload'),
        ('simple.zip', '', 'simple'),
        ('../../up & away!.zip', 'upload', 'up---away-upload'),
        ('_-dashes-_.zip', 'github', 'dashes-github'),
        ('天气.zip', 'upload', '天气-upload'),
        ('.zip', 'upload', 'zip-upload'),
        ('!!!.zip', 'upload', 'uploaded-skill-upload'),
        ('', 'upload', 'uploaded-skill-upload'),
    ],
)
async def test_the_target_is_named_after_the_file(
    box: Box, filename: str, suffix: str, target: str
):
    (skill,) = await box.client.preview_skill_zip(archive(ONE), filename, target_suffix=suffix)
    assert skill['package_root'] == str(box.skills_root / target)


async def test_a_directory_named_like_the_archive_is_not_repeated_in_the_target(box: Box):
    files = {'top.txt': 'x', 'pack/SKILL.md': '', 'other/SKILL.md': ''}
    skills = await box.client.preview_skill_zip(archive(files), 'pack.zip')
    assert [Path(skill['package_root']).name for skill in skills] == [
        'pack-other-upload',
        'pack-upload',
    ]


async def test_install_skill_zip_installs_the_only_one(box: Box):
    (skill,) = await box.client.install_skill_zip(archive(ONE), 'pack.zip')
    assert set(skill) == SKILL_KEYS
    assert skill['package_root'] == str(box.skills_root / 'pack-upload')
    assert await box.client.list_skills() == [skill]
    listed = await box.client.list_skill_files('one', 'scripts')
    assert [entry['path'] for entry in listed['entries']] == ['scripts/run.sh']
    read = await box.client.read_skill_file('one', 'scripts/run.sh')
    assert read['content'] == 'echo run'


async def test_install_skill_zip_installs_the_chosen_ones(box: Box):
    skills = await box.client.install_skill_zip(
        archive(TWO), 'two.zip', source_paths=['/b/', 'a', 'b']
    )
    assert [skill['name'] for skill in skills] == ['beta', 'alpha']
    assert (box.skills_root / 'two-b-upload' / 'data.txt').read_text() == 'data'
    assert {skill['name'] for skill in await box.client.list_skills()} == {'alpha', 'beta'}


async def test_install_skill_zip_accepts_the_old_source_path(box: Box):
    (skill,) = await box.client.install_skill_zip(archive(TWO), 'two.zip', source_path='a')
    assert skill['name'] == 'alpha'


async def test_install_skill_zip_requires_a_choice(box: Box):
    text = await refused(box.client.install_skill_zip(archive(TWO), 'two.zip'))
    assert text == 'Multiple skills found. Please choose one or more source_paths: a, b'
    text = await refused(box.client.install_skill_zip(archive(TWO), 't.zip', source_paths=['c']))
    assert text == 'Invalid source_path "c". Available: a, b'
    assert await box.client.list_skills() == []


async def test_install_skill_zip_over_a_package_is_refused(box: Box):
    await box.client.install_skill_zip(archive(ONE), 'pack.zip')
    text = await refused(box.client.install_skill_zip(archive(ONE), 'pack.zip'))
    assert text == f'Skill directory already exists: {box.skills_root / "pack-upload"}'
    (skill,) = await box.client.install_skill_zip(archive(ONE), 'pack.zip', target_suffix='2')
    assert skill['package_root'].endswith(('/pack-2', '/pack-upload'))


async def test_install_skill_zip_installs_all_or_nothing(box: Box):
    (box.skills_root / 'two-b-upload').mkdir(parents=True)
    request = box.client.install_skill_zip(archive(TWO), 'two.zip', source_paths=['a', 'b'])
    assert (await refused(request)).startswith('Skill directory already exists: ')
    assert sorted(path.name for path in box.skills_root.iterdir()) == ['two-b-upload']


async def test_two_choices_with_one_target_are_refused(box: Box):
    files = {'x/same/SKILL.md': '', 'y/same/SKILL.md': ''}
    request = box.client.install_skill_zip(
        archive(files), 'p.zip', source_paths=['x/same', 'y/same']
    )
    target = box.skills_root / 'p-same-upload'
    assert await refused(request) == f'Duplicate target directory selected: {target}'


async def test_source_subdir_selects_a_part_of_the_archive(box: Box):
    files = {f'repo/{name}': text for name, text in TWO.items()}
    (skill,) = await box.client.preview_skill_zip(
        archive(files), 'repo.zip', source_subdir='pack/b'
    )
    assert (skill['name'], skill['source_path']) == ('beta', '')
    (skill,) = await box.client.install_skill_zip(
        archive(files), 'repo.zip', source_subdir='/pack/a/', target_suffix=''
    )
    assert skill['package_root'] == str(box.skills_root / 'repo')


@pytest.mark.parametrize(
    ('subdir', 'text'),
    [
        ('../x', 'source_subdir must stay within the uploaded archive'),
        ('a/../../x', 'source_subdir must stay within the uploaded archive'),
        ('nowhere', 'source_subdir does not exist in the uploaded archive: nowhere'),
    ],
)
async def test_an_invalid_source_subdir_is_refused(box: Box, subdir: str, text: str):
    request = box.client.preview_skill_zip(archive(ONE), 'x.zip', source_subdir=subdir)
    assert await refused(request) == text


async def test_an_archive_without_a_skill_is_refused(box: Box):
    files = {'readme.txt': '', 'a/b/c/SKILL.md': 'too deep'}
    text = await refused(box.client.preview_skill_zip(archive(files), 'x.zip'))
    assert text.startswith('No SKILL.md found in ')
    assert text.endswith(' or its subdirectories (max depth: 2)')


@pytest.mark.parametrize(
    ('data', 'text'),
    [
        (b'', 'Uploaded file is empty'),
        (b'not a zip', 'Uploaded file must be a valid .zip archive'),
        (archive(ONE)[:-30], 'Uploaded file must be a valid .zip archive'),
        (random.Random(1).randbytes(50_000), 'Uploaded file must be a valid .zip archive'),
    ],
    ids=['empty', 'text', 'cut', 'noise'],
)
async def test_an_invalid_archive_is_refused(box: Box, data: bytes, text: str):
    assert await refused(box.client.preview_skill_zip(data, 'x.zip')) == text
    assert await refused(box.client.install_skill_zip(data, 'x.zip')) == text


@pytest.mark.parametrize('name', ['../evil', 'a/../../evil', '/evil', '../../evil/SKILL.md'])
async def test_a_member_that_leaves_the_archive_is_refused(box: Box, name: str, tmp_path: Path):
    before = sorted(tmp_path.rglob('*'))
    files = {'SKILL.md': 'x', name: 'x'}
    for action in (box.client.preview_skill_zip, box.client.install_skill_zip):
        text = await refused(action(archive(files), 'x.zip'))
        assert text == f'Archive contains an unsafe path: {name}'
    after = [path for path in sorted(tmp_path.rglob('*')) if path != box.skills_root]
    assert [path for path in after if path != box.host_root] == before


@pytest.mark.better('an archive that unpacks to more than its limits is refused')
@pytest.mark.parametrize(
    'files',
    [{'zeros.bin': bytes(30_000_000)}, {f'{number}': b'' for number in range(20_000)}],
    ids=['by its ratio', 'by its count'],
)
async def test_a_zip_bomb_is_refused(box: Box, files: dict[str, bytes]):
    bomb = archive({'SKILL.md': ''} | files, zipfile.ZIP_DEFLATED)
    for action in (box.client.preview_skill_zip, box.client.install_skill_zip):
        assert 'exceeds the limit of' in await refused(action(bomb, 'bomb.zip'))
    assert await box.client.list_skills() == []
    assert not list(box.skills_root.glob('*'))


@pytest.mark.better('with two members of one name the preview could differ from the installed file')
async def test_a_duplicate_member_is_refused(box: Box):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, 'w') as out:
        out.writestr('SKILL.md', '---\nname: shown\n---\n')
        with pytest.warns(UserWarning, match='Duplicate name'):
            out.writestr('SKILL.md', '---\nname: hidden\n---\n')
    with pytest.raises(BoxValidationError):
        await box.client.install_skill_zip(buffer.getvalue(), 'twice.zip')
    assert await box.client.list_skills() == []


@pytest.mark.better('symlinks are never created')
async def test_a_symlink_in_an_archive_is_refused(box: Box):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, 'w') as out:
        out.writestr('SKILL.md', '---\nname: linked\n---\n')
        link = zipfile.ZipInfo('secret')
        link.create_system = 3
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        out.writestr(link, '/etc/passwd')
    with pytest.raises(BoxValidationError):
        await box.client.install_skill_zip(buffer.getvalue(), 'linked.zip')
    assert not [path for path in box.skills_root.rglob('*') if path.is_symlink()]


@pytest.mark.parametrize('size', [16_383, 16_384, 16_385, 400_000])
async def test_an_archive_of_many_chunks_arrives_whole(box: Box, size: int):
    blob = random.Random(size).randbytes(size)
    await box.client.install_skill_zip(archive(ONE | {'pack/blob.bin': blob}), 'big.zip')
    assert (box.skills_root / 'big-upload' / 'blob.bin').read_bytes() == blob


def chunk(file_key: str, data: bytes, index: int = 0, amount: int = 1) -> dict:
    return {
        'file_key': file_key,
        'file_length': len(data),
        'chunk_base64': base64.b64encode(data).decode(),
        'chunk_index': index,
        'chunk_amount': amount,
        'chunk_size': len(data),
    }


async def test_an_uploaded_file_can_be_used_once(box: Box):
    key = await box.handler.send_file(archive(ONE), 'zip')
    data = {'file_key': key, 'filename': 'x.zip'}
    result = await box.call(Action.PREVIEW_SKILL_ZIP, data)
    assert [skill['name'] for skill in result['skills']] == ['one']
    with pytest.raises(BoxValidationError):
        await box.call(Action.PREVIEW_SKILL_ZIP, data)


async def test_a_chunk_returns_an_empty_object(box: Box):
    key = 'a' * 16 + '-' + 'b' * 32 + '.zip'
    data = archive(ONE)
    half = len(data) // 2
    first, second = chunk(key, data[:half], 0, 2), chunk(key, data[half:], 1, 2)
    assert await box.handler.call_action(CommonAction.FILE_CHUNK, first) == {}
    assert await box.handler.call_action(CommonAction.FILE_CHUNK, second) == {}
    result = await box.call(Action.PREVIEW_SKILL_ZIP, {'file_key': key})
    assert result['skills'][0]['package_root'] == str(box.skills_root / 'skill-upload')


@pytest.mark.better('a file key is a name, never a path')
@pytest.mark.parametrize('key', ['../../escaped.zip', '/tmp/escaped.zip', 'a/../../b.zip', '..'])
async def test_a_file_key_that_is_a_path_is_refused(box: Box, key: str):
    with pytest.raises(Exception, match='.+'):
        await box.handler.call_action(CommonAction.FILE_CHUNK, chunk(key, b'data'))
    assert not list(box.runtime.directory.rglob('escaped.zip'))
    assert not Path('/tmp/escaped.zip').exists()
    with pytest.raises(BoxValidationError):
        await box.call(Action.PREVIEW_SKILL_ZIP, {'file_key': key})
