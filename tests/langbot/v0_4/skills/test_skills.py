"""The skill store, without archives."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import pytest
from langbot_plugin.box.errors import BoxValidationError

from support.box import Action, Box

SKILL_KEYS = {
    'name',
    'display_name',
    'description',
    'instructions',
    'package_root',
    'entry_file',
    'created_at',
    'updated_at',
}


def package(directory: Path, text: str, entry: str = 'SKILL.md') -> Path:
    directory.mkdir(parents=True)
    (directory / entry).write_text(text, encoding='utf-8')
    return directory


async def refused(request) -> str:
    """Asserts that the store refuses a request; returns the message without the error class."""
    with pytest.raises(BoxValidationError) as error:
        await request
    name, text = str(error.value).split(': ', 1)
    assert name == 'BoxValidationError'
    return text


async def test_an_empty_store_has_no_skills(box: Box):
    assert await box.call(Action.LIST_SKILLS, {}) == {'skills': []}


async def test_create_skill_writes_a_package(box: Box):
    fields = {
        'name': 'weather',
        'display_name': 'Weather 天气',
        'description': 'Tells: the weather',
        'instructions': '# Look up\n\nThen say.\n',
    }
    skill = await box.client.create_skill(fields)
    assert set(skill) == SKILL_KEYS
    assert {key: skill[key] for key in fields} == fields
    assert skill['package_root'] == str(box.skills_root / 'weather')
    assert skill['entry_file'] == 'SKILL.md'
    for key in ('created_at', 'updated_at'):
        assert dt.datetime.fromisoformat(skill[key]).utcoffset() == dt.timedelta(0)
        assert skill[key].endswith('+00:00')
    text = (box.skills_root / 'weather' / 'SKILL.md').read_text(encoding='utf-8')
    head, body = text.removeprefix('---\n').split('\n---\n\n')
    assert head.split('\n')[:2] == ['name: weather', 'display_name: Weather 天气']
    assert body == '# Look up\n\nThen say.\n'


async def test_create_skill_needs_only_a_name(box: Box):
    skill = await box.client.create_skill({'name': 'bare'})
    assert (skill['display_name'], skill['description'], skill['instructions']) == ('bare', '', '')
    assert (box.skills_root / 'bare' / 'SKILL.md').read_text() == '---\nname: bare\n---\n\n'


async def test_create_skill_twice_is_refused(box: Box):
    await box.client.create_skill({'name': 'once'})
    text = await refused(box.client.create_skill({'name': 'once'}))
    assert text == 'Skill with name "once" already exists'


NAMES = [
    ('', 'Skill name is required'),
    ('   ', 'Skill name is required'),
    ('a b', 'Skill name can only contain letters, numbers, hyphens and underscores'),
    ('../up', 'Skill name can only contain letters, numbers, hyphens and underscores'),
    ('a/b', 'Skill name can only contain letters, numbers, hyphens and underscores'),
    ('--', 'Skill name can only contain letters, numbers, hyphens and underscores'),
    ('n' * 65, 'Skill name cannot exceed 64 characters'),
]


@pytest.mark.parametrize(('name', 'text'), NAMES)
async def test_an_invalid_skill_name_is_refused(box: Box, name: str, text: str):
    assert await refused(box.client.create_skill({'name': name})) == text
    assert await box.client.list_skills() == []


@pytest.mark.parametrize('name', ['a', 'A-b_C9', '天气', 'n' * 64])
async def test_a_valid_skill_name_is_accepted(box: Box, name: str):
    assert (await box.client.create_skill({'name': name}))['name'] == name
    assert (await box.client.get_skill(name))['name'] == name


async def test_create_skill_copies_a_directory_from_elsewhere(box: Box, tmp_path: Path):
    source = package(
        tmp_path / 'source', '---\nname: old\ndescription: From elsewhere\n---\n\nDo it.'
    )
    (source / 'scripts').mkdir()
    (source / 'scripts' / 'run.sh').write_text('echo hi')
    skill = await box.client.create_skill(
        {'name': 'imported', 'display_name': 'Mine', 'package_root': str(source)}
    )
    assert skill['package_root'] == str(box.skills_root / 'imported')
    assert (skill['name'], skill['display_name']) == ('imported', 'Mine')
    assert (skill['description'], skill['instructions']) == ('From elsewhere', 'Do it.')
    copied = box.skills_root / 'imported' / 'scripts' / 'run.sh'
    assert copied.read_text() == 'echo hi'
    assert 'name: old' in (source / 'SKILL.md').read_text()


async def test_create_skill_uses_a_directory_of_the_store_in_place(box: Box):
    directory = package(box.skills_root / 'group' / 'inner', '---\nname: draft\n---\n\nText.')
    skill = await box.client.create_skill({'name': 'final', 'package_root': str(directory)})
    assert skill['package_root'] == str(directory)
    assert (skill['name'], skill['instructions']) == ('final', 'Text.')
    assert [s['name'] for s in await box.client.list_skills()] == ['final']


async def test_create_skill_from_a_missing_directory_is_refused(box: Box, tmp_path: Path):
    missing = tmp_path / 'missing'
    fields = {'name': 'x', 'package_root': str(missing)}
    text = await refused(box.client.create_skill(fields))
    assert text == f'Directory does not exist: {missing}'


async def test_create_skill_over_an_existing_directory_is_refused(box: Box, tmp_path: Path):
    source = package(tmp_path / 'source', 'text')
    (box.skills_root / 'taken').mkdir(parents=True)
    fields = {'name': 'taken', 'package_root': str(source)}
    text = await refused(box.client.create_skill(fields))
    assert text == f'Skill directory already exists: {box.skills_root / "taken"}'


async def test_create_skill_from_a_directory_without_a_skill_is_refused(box: Box, tmp_path: Path):
    (tmp_path / 'plain').mkdir()
    fields = {'name': 'plain', 'package_root': str(tmp_path / 'plain')}
    text = await refused(box.client.create_skill(fields))
    assert text.startswith('No SKILL.md found in ')
    assert await box.client.list_skills() == []


async def test_get_skill_returns_the_skill_or_null(box: Box):
    made = await box.client.create_skill({'name': 'one', 'instructions': 'Text'})
    assert await box.client.get_skill('one') == made
    assert await box.call(Action.GET_SKILL, {'name': 'other'}) == {'skill': None}


async def test_list_skills_is_sorted_newest_first(box: Box):
    for age, name in enumerate(('newest', 'middle', 'oldest')):
        made = package(box.skills_root / name, name)
        time = 1_700_000_000 - age * 100
        os.utime(made / 'SKILL.md', (time, time))
    skills = await box.client.list_skills()
    assert [skill['name'] for skill in skills] == ['newest', 'middle', 'oldest']
    assert skills[0]['updated_at'] == '2023-11-14T22:13:20+00:00'
    assert all(set(skill) == SKILL_KEYS for skill in skills)


async def test_list_skills_searches_six_levels(box: Box):
    package(box.skills_root / 'a/b/c/d/e/six', '')
    package(box.skills_root / 'a/b/c/d/e/f/seven', '')
    package(box.skills_root / 'a/inside/of', '')
    package(box.skills_root / 'a/inside/of/another', '')
    names = {skill['name'] for skill in await box.client.list_skills()}
    assert names == {'six', 'of'}


async def test_list_skills_skips_unreadable_packages(box: Box):
    package(box.skills_root / 'good', '---\nname: good\n---\n')
    package(box.skills_root / 'broken', '---\nname: [unclosed\n---\n')
    (package(box.skills_root / 'latin', '') / 'SKILL.md').write_bytes(b'caf\xe9')
    assert [skill['name'] for skill in await box.client.list_skills()] == ['good']


FRONT_MATTER = [
    ('plain text', ('dir', 'dir', '', 'plain text')),
    ('---\nname: n\n---\n\n\nbody', ('n', 'n', '', 'body')),
    ('---\nname: n\ndisplay_name: D\ndescription: " d "\n---\nbody', ('n', 'D', 'd', 'body')),
    ('---\nname: 42\ndescription: true\n---\n', ('42', '42', 'True', '')),
    ('---\nunterminated: yes\nbody', ('dir', 'dir', '', '---\nunterminated: yes\nbody')),
    ('---\n- a\n- list\n---\nbody', ('dir', 'dir', '', 'body')),
    ('---\n---\nbody', ('dir', 'dir', '', 'body')),
    ('--- \nname: n\n ---\nbody', ('n', 'n', '', 'body')),
    (' ---\nname: n\n---\nbody', ('dir', 'dir', '', ' ---\nname: n\n---\nbody')),
    ('---\nname: n\n---\nbody\n---\nmore', ('n', 'n', '', 'body\n---\nmore')),
    ('---\ndescription: |\n  two\n  lines\n---\n', ('dir', 'dir', 'two\nlines', '')),
]


@pytest.mark.parametrize(('text', 'read'), FRONT_MATTER)
async def test_front_matter_is_read(box: Box, text: str, read: tuple[str, str, str, str]):
    package(box.skills_root / 'dir', text)
    (skill,) = await box.client.list_skills()
    keys = ('name', 'display_name', 'description', 'instructions')
    assert tuple(skill[key] for key in keys) == read


async def test_a_lower_case_entry_is_found_too(box: Box):
    package(box.skills_root / 'small', 'text', entry='skill.md')
    (skill,) = await box.client.list_skills()
    assert (skill['name'], skill['entry_file']) == ('small', 'skill.md')


async def test_update_skill_changes_what_is_given(box: Box):
    await box.client.create_skill({'name': 's', 'description': 'old', 'instructions': 'kept'})
    skill = await box.client.update_skill('s', {'description': 'new', 'display_name': 'S'})
    assert (skill['description'], skill['display_name']) == ('new', 'S')
    assert skill['instructions'] == 'kept'
    assert await box.client.get_skill('s') == skill


async def test_update_skill_refuses_unsupported_changes(box: Box, tmp_path: Path):
    await box.client.create_skill({'name': 's'})
    assert await refused(box.client.update_skill('x', {})) == 'Skill "x" not found'
    text = await refused(box.client.update_skill('s', {'name': 't'}))
    assert text == 'Renaming skills is not supported'
    text = await refused(box.client.update_skill('s', {'package_root': str(tmp_path)}))
    assert text == (
        'Updating package_root is not supported; recreate the skill to import a different package'
    )


async def test_update_skill_accepts_its_own_name_and_directory(box: Box):
    made = await box.client.create_skill({'name': 's'})
    fields = {'name': 's', 'package_root': made['package_root'], 'instructions': 'new'}
    assert (await box.client.update_skill('s', fields))['instructions'] == 'new'


@pytest.mark.better('unknown front matter is kept')
async def test_update_skill_keeps_unknown_keys(box: Box):
    text = '---\nname: s\nlicense: MIT\nallowed-tools:\n- Read\n- Bash\n---\n\nText.'
    directory = package(box.skills_root / 's', text)
    await box.client.update_skill('s', {'description': 'new'})
    written = (directory / 'SKILL.md').read_text()
    assert 'license: MIT' in written and 'allowed-tools:' in written and 'Bash' in written
    assert 'description: new' in written and written.endswith('\n\nText.')


async def test_delete_skill_removes_the_package(box: Box):
    await box.client.create_skill({'name': 'gone'})
    assert await box.call(Action.DELETE_SKILL, {'name': 'gone'}) == {'deleted': 'gone'}
    assert not (box.skills_root / 'gone').exists()
    assert await refused(box.client.delete_skill('gone')) == 'Skill "gone" not found'


async def test_delete_skill_removes_the_enclosing_package(box: Box):
    package(box.skills_root / 'pack' / 'one', '')
    (box.skills_root / 'pack' / 'README').write_text('')
    await box.client.delete_skill('one')
    assert not (box.skills_root / 'pack').exists()


@pytest.mark.better('other skills of the same package are not deleted')
async def test_delete_skill_keeps_other_skills_of_the_package(box: Box):
    package(box.skills_root / 'pack' / 'one', '')
    package(box.skills_root / 'pack' / 'two', '')
    await box.client.delete_skill('one')
    assert [skill['name'] for skill in await box.client.list_skills()] == ['two']
    assert not (box.skills_root / 'pack' / 'one').exists()


async def test_delete_skill_refuses_the_root_itself(box: Box):
    package(box.skills_root, '---\nname: root\n---\n')
    text = await refused(box.client.delete_skill('root'))
    assert text == 'Only managed skills under the Box skills root can be deleted'
    assert (box.skills_root / 'SKILL.md').exists()


async def test_scan_skill_directory_finds_one_skill(box: Box, tmp_path: Path):
    directory = package(tmp_path / 'scan' / 'deeper' / 'found', '---\nname: f\n---\nText')
    skill = await box.client.scan_skill_directory(str(tmp_path / 'scan'))
    assert set(skill) == SKILL_KEYS
    assert (skill['name'], skill['package_root']) == ('f', str(directory))
    assert (skill['instructions'], skill['entry_file']) == ('Text', 'SKILL.md')


async def test_scan_skill_directory_requires_exactly_one_skill(box: Box, tmp_path: Path):
    directory = tmp_path / 'scan'
    text = await refused(box.client.scan_skill_directory(str(directory)))
    assert text == f'Directory does not exist: {directory}'
    package(directory / 'a/b/too-deep', '')
    text = await refused(box.client.scan_skill_directory(str(directory)))
    assert text == f'No SKILL.md found in {directory} or its subdirectories (max depth: 2)'
    package(directory / 'one', '')
    package(directory / 'two', '')
    text = await refused(box.client.scan_skill_directory(str(directory)))
    assert text == (
        f'Multiple skill directories found in {directory}. '
        f'Please choose a more specific path: {directory}/one, {directory}/two'
    )


async def test_a_skill_is_mounted_into_a_box(box: Box):
    skill = await box.client.create_skill({'name': 'runner'})
    await box.client.write_skill_file('runner', 'scripts/run.sh', 'echo ran by "$1"\n')
    mount = {'host_path': skill['package_root'], 'mount_path': '/workspace/.skills/runner'}
    result = await box.run('sh .skills/runner/scripts/run.sh box', extra_mounts=[mount])
    assert (result.exit_code, result.stdout) == (0, 'ran by box')
