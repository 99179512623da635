"""Status, `exec` and the file tools in the web chat."""

from __future__ import annotations

from fake_model import ToolCall
from environment import Environment

NATIVE_TOOLS = {'exec', 'read', 'write', 'edit', 'glob', 'grep'}


async def the_runtime_is_available(environment: Environment) -> None:
    status = await environment.langbot.get('/box/status')
    assert status['available'] is True, status
    assert status['enabled'] is True, status
    assert status['backend']['available'] is True, status
    if environment.on_boxwood:
        assert status['backend']['name'] == 'native', status
    assert status['active_sessions'] == 0, status
    assert status['session_ttl_sec'] == 300, status
    assert not status.get('connector_error'), status
    assert await environment.langbot.get('/box/sessions') == []
    assert await environment.langbot.get('/box/errors') == []


async def exec_from_a_chat(environment: Environment) -> None:
    await environment.open_the_chat()
    command = "echo hello-from-box; python3 -c 'print(6*7)'"
    for stream in (True, False):
        turn = await environment.chat.send(ToolCall('exec', {'command': command}), stream=stream)
        assert set(turn.offered_tools) >= NATIVE_TOOLS, turn.offered_tools
        seen = turn.only()
        assert seen['ok'] is True, seen
        assert seen['status'] == 'completed', seen
        assert seen['exit_code'] == 0, seen
        assert seen['stdout'] == 'hello-from-box\n42', seen
        assert seen['stderr'] == '', seen
        assert 'hello-from-box' in turn.reply, turn.reply
        if environment.on_boxwood:
            assert seen['backend'] == 'native', seen

    (session,) = await environment.langbot.get('/box/sessions')
    assert session['session_id'] == seen['session_id'], session
    assert session['session_id'].startswith('person_websocket_'), session
    assert session['host_path'] == str(environment.workspace), session
    assert session['mount_path'] == '/workspace', session
    assert session['network'] == 'off', session


async def failures_reach_the_model(environment: Environment) -> None:
    failed = await environment.exec('echo out; echo err >&2; exit 3')
    assert (failed['ok'], failed['exit_code']) == (False, 3), failed
    assert (failed['stdout'], failed['stderr']) == ('out', 'err'), failed

    with_env = await environment.exec('echo "$COLOUR in $PWD"', env={'COLOUR': 'green'}, workdir='/workspace')
    assert with_env['stdout'] == 'green in /workspace', with_env

    late = await environment.exec('echo before; sleep 60', timeout_sec=1)
    assert (late['ok'], late['status'], late['exit_code']) == (False, 'timed_out', None), late

    # A box has no network in the default profile.
    offline = await environment.exec('cat /proc/net/route | wc -l')
    assert offline['stdout'] == '1', offline

    long = await environment.exec('seq 1 100000')
    assert long['stdout_truncated'] is True, long
    assert len(long['stdout']) <= 4000, len(long['stdout'])
    assert long['stdout'].startswith('1\n2\n') and long['stdout'].endswith('100000'), long


async def file_tools_from_a_chat(environment: Environment) -> None:
    poem = '/workspace/notes/poem.txt'
    turn = await environment.chat.send(
        ToolCall('write', {'path': poem, 'content': 'first line\nsecond line\nthird line\n'}),
        ToolCall('read', {'path': poem}),
        ToolCall('edit', {'path': poem, 'old_string': 'second', 'new_string': '2nd'}),
        ToolCall('edit', {'path': poem, 'old_string': 'line', 'new_string': 'row'}),
        ToolCall('glob', {'pattern': '*.txt'}),
        ToolCall('grep', {'pattern': '^2nd', 'include': '*.txt'}),
        # Commands in the box read and change the files that the tools wrote.
        ToolCall('exec', {'command': f'cat {poem} && echo fourth line >> {poem}'}),
        ToolCall('read', {'path': poem}),
        ToolCall('read', {'path': '/workspace/notes'}),
        ToolCall('read', {'path': '/workspace/absent'}),
    )
    written, read, edited, ambiguous, globbed, grepped, shown, reread, listed, absent = turn.objects()
    assert written == {'ok': True, 'path': poem}, written
    assert read == {'ok': True, 'content': 'first line\nsecond line\nthird line\n'}, read
    assert edited == {'ok': True, 'path': poem}, edited
    assert ambiguous['ok'] is False and 'matches 3 locations' in ambiguous['error'], ambiguous
    assert globbed['matches'] == [poem], globbed
    assert [(hit['line'], hit['content']) for hit in grepped['matches']] == [(2, '2nd line')], grepped
    assert shown['ok'] is True and shown['stdout'] == 'first line\n2nd line\nthird line', shown
    assert reread['content'].endswith('third line\nfourth line\n'), reread
    assert listed == {'ok': True, 'content': 'poem.txt', 'is_directory': True}, listed
    assert absent['ok'] is False, absent

    # The reverse: created by a command, changed by a tool.
    turn = await environment.chat.send(
        ToolCall('exec', {'command': 'mkdir -p made && echo by the box > made/file && ls -la made'}),
        ToolCall('edit', {'path': '/workspace/made/file', 'old_string': 'by', 'new_string': 'in'}),
        ToolCall('exec', {'command': 'cat made/file; echo again >> made/file; wc -l < made/file'}),
    )
    made, edited, shown = turn.objects()
    assert made['ok'] is True, made
    assert edited == {'ok': True, 'path': '/workspace/made/file'}, edited
    assert shown['stdout'].split('\n') == ['in the box', '2'], shown
    # Files of the box belong to the owner of the workspace on the host.
    owner = (environment.workspace / 'made/file').stat().st_uid
    if environment.on_boxwood:
        assert owner == environment.workspace.stat().st_uid, owner


STEPS = [
    the_runtime_is_available,
    exec_from_a_chat,
    failures_reach_the_model,
    file_tools_from_a_chat,
]
