"""Files inside a skill package."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_skills import refused

from support.box import Action, Box


@pytest.fixture
async def skill(box: Box) -> Path:
    made = await box.client.create_skill({'name': 's', 'instructions': 'text'})
    return Path(made['package_root'])


async def test_list_skill_files_shows_one_level(box: Box, skill: Path):
    (skill / 'scripts').mkdir()
    (skill / 'scripts' / 'run.py').write_text('print()')
    (skill / 'b.txt').write_text('12345')
    (skill / '.hidden').write_text('')
    size = (skill / 'SKILL.md').stat().st_size
    assert await box.client.list_skill_files('s') == {
        'skill': {'name': 's'},
        'base_path': '.',
        'entries': [
            {'path': 'SKILL.md', 'name': 'SKILL.md', 'is_dir': False, 'size': size},
            {'path': 'b.txt', 'name': 'b.txt', 'is_dir': False, 'size': 5},
            {'path': 'scripts', 'name': 'scripts', 'is_dir': True, 'size': None},
        ],
        'truncated': False,
    }
    below = await box.client.list_skill_files('s', 'scripts/')
    assert below['base_path'] == 'scripts'
    assert below['entries'] == [
        {'path': 'scripts/run.py', 'name': 'run.py', 'is_dir': False, 'size': 7}
    ]


async def test_list_skill_files_shows_hidden_files_on_request(box: Box, skill: Path):
    (skill / '.hidden').write_text('')
    listed = await box.client.list_skill_files('s', include_hidden=True)
    assert [entry['name'] for entry in listed['entries']] == ['.hidden', 'SKILL.md']


async def test_list_skill_files_stops_at_max_entries(box: Box, skill: Path):
    for number in range(10):
        (skill / f'{number}').write_text('')
    listed = await box.client.list_skill_files('s', max_entries=4)
    assert [entry['name'] for entry in listed['entries']] == ['0', '1', '2', '3']
    assert listed['truncated'] is True


async def test_list_skill_files_has_defaults(box: Box, skill: Path):
    for number in range(205):
        (skill / f'{number:03}').write_text('')
    listed = await box.call(Action.LIST_SKILL_FILES, {'name': 's'})
    assert (listed['base_path'], len(listed['entries'])) == ('.', 200)
    assert listed['truncated'] is True


async def test_list_skill_files_of_a_missing_directory_is_refused(box: Box, skill: Path):
    text = await refused(box.client.list_skill_files('s', 'nowhere'))
    assert text == 'Skill directory not found: nowhere'
    text = await refused(box.client.list_skill_files('s', 'SKILL.md'))
    assert text == 'Skill directory not found: SKILL.md'


@pytest.mark.parametrize(
    ('path', 'content'),
    [
        ('notes.txt', 'plain\n'),
        ('deep/er/file.md', 'h\u00e9 \u4e2d \U0001f600'),
        ('./dotted/../plain.txt', ''),
        ('crlf.txt', 'a\nb\n'),
    ],
)
async def test_a_written_file_is_read_back(box: Box, skill: Path, path: str, content: str):
    normal = str(Path(path)) if '..' not in path else 'plain.txt'
    written = await box.client.write_skill_file('s', path, content)
    assert written == {
        'skill': {'name': 's'},
        'path': normal,
        'bytes_written': len(content.encode()),
    }
    assert await box.client.read_skill_file('s', path) == {
        'skill': {'name': 's'},
        'path': normal,
        'content': content,
    }
    assert (skill / normal).read_bytes() == content.encode()


async def test_write_skill_file_overwrites(box: Box, skill: Path):
    await box.client.write_skill_file('s', 'f', 'long before')
    await box.client.write_skill_file('s', 'f', 'short')
    assert (skill / 'f').read_text() == 'short'


async def test_write_skill_file_without_content_is_empty(box: Box, skill: Path):
    written = await box.call(Action.WRITE_SKILL_FILE, {'name': 's', 'path': 'empty'})
    assert written['bytes_written'] == 0
    assert (skill / 'empty').read_text() == ''


async def test_writing_the_entry_file_changes_the_skill(box: Box, skill: Path):
    await box.client.write_skill_file('s', 'SKILL.md', '---\nname: s\n---\n\nAnew.')
    assert (await box.client.get_skill('s'))['instructions'] == 'Anew.'


@pytest.mark.better('a file larger than a frame of the client arrives whole')
@pytest.mark.parametrize('size', [70_000, 500_000])
async def test_a_large_file_arrives_whole(box: Box, skill: Path, size: int):
    content = ('0123456789abcde\n' * (size // 16 + 1))[:size]
    written = await box.client.write_skill_file('s', 'large', content)
    assert written['bytes_written'] == size
    assert (await box.client.read_skill_file('s', 'large'))['content'] == content


async def test_read_skill_file_of_a_missing_file_is_refused(box: Box, skill: Path):
    text = await refused(box.client.read_skill_file('s', 'missing.txt'))
    assert text == 'Skill file not found: missing.txt'
    (skill / 'dir').mkdir()
    assert await refused(box.client.read_skill_file('s', 'dir')) == 'Skill file not found: dir'


async def test_read_skill_file_of_a_binary_file_is_refused(box: Box, skill: Path):
    (skill / 'image.png').write_bytes(b'\x89PNG\xff\xfe')
    text = await refused(box.client.read_skill_file('s', 'image.png'))
    assert text == 'Skill file is not valid UTF-8 text: image.png'


OUTSIDE = 'path must stay within the skill package root'
ABSOLUTE = 'path must be relative to the skill package root'
PATHS = [
    ('../secret', OUTSIDE),
    ('a/../../secret', OUTSIDE),
    ('..', OUTSIDE),
    ('/etc/passwd', ABSOLUTE),
    ('link/passwd', OUTSIDE),
    ('..foo', OUTSIDE),
]


@pytest.mark.parametrize(('path', 'text'), PATHS)
async def test_a_path_that_leaves_the_package_is_refused(
    box: Box, skill: Path, path: str, text: str
):
    (skill / 'link').symlink_to('/etc')
    (skill.parent / 'secret').write_text('canary')
    assert await refused(box.client.read_skill_file('s', path)) == text
    assert await refused(box.client.write_skill_file('s', path, 'overwritten')) == text
    assert await refused(box.client.list_skill_files('s', path)) == text
    assert (skill.parent / 'secret').read_text() == 'canary'


async def test_files_of_an_unknown_skill_are_refused(box: Box):
    for request in (
        box.client.list_skill_files('x'),
        box.client.read_skill_file('x', 'f'),
        box.client.write_skill_file('x', 'f', ''),
    ):
        assert await refused(request) == 'Skill "x" not found'
