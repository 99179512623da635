"""Skills: created and uploaded through the admin API, used by the agent in its box."""

from __future__ import annotations

import io
import zipfile

from fake_model import ToolCall
from langbot import LangBotRefused
from environment import Environment


async def skills_by_api(environment: Environment) -> None:
    api = environment.langbot
    assert (await api.get('/skills'))['skills'] == []
    created = await api.post(
        '/skills',
        {
            'name': 'weather-report',
            'display_name': 'Weather report',
            'description': 'Writes a weather report',
            'instructions': 'Run scripts/report.sh.',
        },
    )
    skill = created['skill']
    assert skill['name'] == 'weather-report', skill
    assert skill['display_name'] == 'Weather report', skill
    assert skill['instructions'] == 'Run scripts/report.sh.', skill
    assert skill['package_root'].endswith('/data/box/skills/weather-report'), skill

    script = '#!/bin/sh\necho "sunny in $(basename "$PWD")"\n'
    written = await api.put('/skills/weather-report/files/scripts/report.sh', {'content': script})
    assert written['bytes_written'] == len(script), written
    read = await api.get('/skills/weather-report/files/scripts/report.sh')
    assert read['content'] == script, read
    listing = await api.get('/skills/weather-report/files')
    entries = {entry['name']: entry['is_dir'] for entry in listing['entries']}
    assert entries == {'SKILL.md': False, 'scripts': True}, listing

    updated = await api.put(
        '/skills/weather-report',
        {'name': 'weather-report', 'description': 'Reports the weather', 'instructions': 'Ask first.'},
    )
    assert updated['skill']['description'] == 'Reports the weather', updated
    (listed,) = (await api.get('/skills'))['skills']
    assert listed['instructions'] == 'Ask first.', listed
    assert (await api.get('/skills/weather-report/preview'))['instructions'] == 'Ask first.'

    await refused(400, 'already exists', api.post('/skills', {'name': 'weather-report'}))
    await refused(400, 'letters, numbers', api.post('/skills', {'name': '../escape'}))
    await refused(404, 'not found', api.get('/skills/absent'))
    await refused(400, 'not found', api.get('/skills/weather-report/files/absent.txt'))
    outside = api.get('/skills/weather-report/files?path=../..')
    await refused(400, 'within the skill package root', outside)


async def skills_by_zip(environment: Environment) -> None:
    api = environment.langbot
    archive = zipped(
        {
            'pack/alpha/SKILL.md': front_matter('alpha', 'The first letter'),
            'pack/alpha/data.txt': 'alpha data\n',
            'pack/beta/SKILL.md': front_matter('beta', 'The second letter'),
            'pack/beta/data.txt': 'beta data\n',
        }
    )
    preview = (await api.upload('/skills/install/upload/preview', 'letters.zip', archive))['skills']
    assert [skill['source_path'] for skill in preview] == ['alpha', 'beta'], preview
    assert [skill['name'] for skill in preview] == ['alpha', 'beta'], preview
    names = {skill['name'] for skill in (await api.get('/skills'))['skills']}
    assert names == {'weather-report'}, 'a preview installs nothing'

    which = api.upload('/skills/install/upload', 'letters.zip', archive)
    await refused(400, 'Multiple skills found', which)
    installed = (
        await api.upload('/skills/install/upload', 'letters.zip', archive, source_paths=['beta'])
    )['skills']
    assert [skill['name'] for skill in installed] == ['beta'], installed
    read = await api.get('/skills/beta/files/data.txt')
    assert read['content'] == 'beta data\n', read

    slip = zipped({'SKILL.md': front_matter('slip', 'Slips out'), '../slipped.txt': 'out'})
    await refused(400, 'unsafe path', api.upload('/skills/install/upload', 'slip.zip', slip))
    await refused(400, 'valid .zip', api.upload('/skills/install/upload', 'no.zip', b'not a zip'))
    assert not list(environment.home.rglob('slipped.txt')), 'a file was written outside the store'
    names = {skill['name'] for skill in (await api.get('/skills'))['skills']}
    assert names == {'weather-report', 'beta'}, names


async def skills_in_an_existing_session(environment: Environment) -> None:
    """Skills that are created after the session appear in it."""
    (before,) = await environment.langbot.get('/box/sessions')
    mount = '/workspace/.skills/weather-report'
    turn = await environment.chat.send(
        ToolCall('activate', {'skill_name': 'weather-report'}),
        ToolCall('exec', {'command': 'sh scripts/report.sh', 'workdir': mount}),
        # The package is writable in the box, and changes appear in the store.
        ToolCall('exec', {'command': f'echo from the box > {mount}/log.txt && ls {mount}'}),
        ToolCall('read', {'path': f'{mount}/log.txt'}),
        ToolCall('edit', {'path': f'{mount}/log.txt', 'old_string': 'from', 'new_string': 'past'}),
        ToolCall('exec', {'command': f'cat {mount}/log.txt'}),
    )
    activated, ran, wrote, read, edited, shown = turn.objects()
    assert activated['activated'] is True and activated['mount_path'] == mount, activated
    assert 'Ask first.' in activated['content'], activated
    assert ran['ok'] is True and ran['stdout'] == 'sunny in weather-report', ran
    assert wrote['stdout'].split() == ['SKILL.md', 'log.txt', 'scripts'], wrote
    assert read == {'ok': True, 'content': 'from the box\n'}, read
    assert edited['ok'] is True, edited
    assert shown['stdout'] == 'past the box', shown
    assert 'weather-report' in index_of_skills(turn.messages), turn.messages[:2]

    turn = await environment.chat.send(
        ToolCall('activate', {'skill_name': 'beta'}),
        ToolCall('exec', {'command': 'cat data.txt', 'workdir': '/workspace/.skills/beta'}),
    )
    assert turn.objects()[1]['stdout'] == 'beta data', turn.results

    # A skill that is added now is visible at once.
    await environment.langbot.post('/skills', {'name': 'later', 'instructions': 'Added later.'})
    await environment.langbot.put('/skills/later/files/hello.txt', {'content': 'added later'})
    turn = await environment.chat.send(
        ToolCall('activate', {'skill_name': 'later'}),
        ToolCall('exec', {'command': 'cat /workspace/.skills/later/hello.txt'}),
    )
    assert turn.objects()[1]['stdout'] == 'added later', turn.results
    (after,) = await environment.langbot.get('/box/sessions')
    if environment.on_boxwood:
        assert after['created_at'] == before['created_at'], 'the session was created again'

    not_activated = await environment.chat.send(
        ToolCall('exec', {'command': 'cat /workspace/.skills/later/hello.txt'})
    )
    assert not_activated.results[0].startswith('err: '), not_activated.results


async def skills_in_a_new_session(environment: Environment) -> None:
    chat = await environment.langbot.open_chat()
    try:
        turn = await chat.send(
            ToolCall('activate', {'skill_name': 'beta'}),
            ToolCall('exec', {'command': 'cat data.txt', 'workdir': '/workspace/.skills/beta'}),
            ToolCall('exec', {'command': 'ls .skills'}),
        )
    finally:
        await chat.close()
    activated, shown, listed = turn.objects()
    assert shown['stdout'] == 'beta data', shown
    assert listed['stdout'].split() == ['beta', 'later', 'weather-report'], listed


async def a_skill_made_by_the_agent(environment: Environment) -> None:
    turn = await environment.chat.send(
        ToolCall('exec', {'command': 'mkdir -p draft/bin && echo "echo made" > draft/bin/made.sh'}),
        ToolCall(
            'write',
            {'path': '/workspace/draft/SKILL.md', 'content': front_matter('home-made', 'By itself')},
        ),
        ToolCall('register_skill', {'path': '/workspace/draft'}),
        ToolCall('activate', {'skill_name': 'home-made'}),
        ToolCall('exec', {'command': 'sh /workspace/.skills/home-made/bin/made.sh'}),
    )
    registered, ran = turn.objects()[2], turn.objects()[4]
    assert registered['registered'] is True, registered
    assert registered['skill_name'] == 'home-made', registered
    assert ran['stdout'] == 'made', ran

    await environment.langbot.call('DELETE', '/skills/home-made')
    names = {skill['name'] for skill in (await environment.langbot.get('/skills'))['skills']}
    assert names == {'weather-report', 'beta', 'later'}, names
    # The session still works without it.
    seen = await environment.exec('echo still here')
    assert seen['stdout'] == 'still here', seen


async def refused(status: int, text: str, call) -> None:
    """Asserts that the call fails with this status and a message that contains `text`."""
    try:
        result = await call
    except LangBotRefused as refusal:
        assert refusal.status == status and text in refusal.message, refusal
        return
    raise AssertionError(f'{text!r} was expected, and the result was {result}')


def front_matter(name: str, description: str) -> str:
    return f'---\nname: {name}\ndescription: {description}\n---\n\nInstructions of {name}.\n'


def zipped(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, 'w') as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def index_of_skills(messages: list[dict]) -> str:
    return '\n'.join(str(message['content']) for message in messages if message['role'] == 'system')


STEPS = [
    skills_by_api,
    skills_by_zip,
    skills_in_an_existing_session,
    skills_in_a_new_session,
    a_skill_made_by_the_agent,
]
