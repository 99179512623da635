"""Hosted servers from a directory: their box, status, restarts and removal."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pytest

from harness import daemon, processes
from support.hosted import Host, Refused, small, text_of

SECRET = 'hunter2-9f1c'


def seen(host: Host, name: str) -> dict:
    return host.call(name, 'whoami')['structuredContent']


@pytest.fixture
def own(hosting: Host, tmp_path: Path):
    """A function that adds a small server under a name; the servers are removed after the test."""
    added = []

    def add(name: str, *args: str, **more) -> Host:
        script = small(tmp_path, name)
        hosting.add(name, 'python3', str(script), *args, **more)
        added.append(name)
        return hosting

    yield add
    for name in added:
        hosting.remove(name)


def test_omitted_settings_have_defaults(own):
    host = own('plain')
    found = host.info('plain')
    box = found['box']
    assert box['network'] == 'on'
    assert box['host_path_mode'] == 'ro'
    assert box['startup_timeout_sec'] == 120
    assert box['env'] == {}
    for absent in ['image', 'host_path', 'cpus', 'memory_mb', 'pids_limit', 'read_only_rootfs']:
        assert box.get(absent) is None
    assert found['enabled'] is True
    assert found['path'] == '/mcp/plain'
    host.connected('plain')
    session = host.session('mcp-plain')
    assert session['read_only_rootfs'] is False


def test_settings_apply_to_the_box_of_the_server(own):
    settings = {
        'network': 'off',
        'memory_mb': 192,
        'cpus': 0.5,
        'pids_limit': 48,
        'read_only_rootfs': True,
        'startup_timeout_sec': 30,
        'env': {'PLACE': 'box', 'MODE': 'box'},
    }
    host = own('fitted', box=settings, env={'MODE': 'own'})
    host.connected('fitted')
    session = host.session('mcp-fitted')
    for field in ['network', 'memory_mb', 'cpus', 'pids_limit', 'read_only_rootfs']:
        assert session[field] == settings[field], field
    assert text_of(host.call('fitted', 'env', text='PLACE')) == 'box'
    assert text_of(host.call('fitted', 'env', text='MODE')) == 'own'
    kept = host.info('fitted')['box']
    assert {key: kept[key] for key in settings} == settings


def test_an_unknown_setting_is_refused_with_its_name(hosting: Host):
    for body in [
        {'name': 'odd', 'command': 'true', 'enviroment': {}},
        {'name': 'odd', 'command': 'true', 'box': {'memory': 1}},
    ]:
        with pytest.raises(Refused) as refused:
            hosting.request('POST', '/v1/mcp/servers', body)
        assert refused.value.status in (400, 422)
        assert 'enviroment' in str(refused.value) or 'memory' in str(refused.value)
    with pytest.raises(Refused) as refused:
        hosting.add('no/name', 'true')
    assert refused.value.status in (400, 422)


def test_an_imported_document_may_contain_unknown_fields(hosting: Host, tmp_path: Path):
    script = small(tmp_path)
    more = {'disabled': True, 'autoApprove': ['echo'], 'icon': 'x'}
    document = {'mcpServers': {'pasted': {'command': 'python3', 'args': [str(script)], **more}}}
    imported = hosting.paste(document)
    try:
        assert imported['added'] == ['pasted']
        assert hosting.state('pasted')['status'] == 'disabled'
        assert hosting.paste(document)['skipped'][0]['name'] == 'pasted'
    finally:
        hosting.remove('pasted')


def test_the_directory_is_mounted_read_only_and_arguments_are_translated(own, tmp_path: Path):
    host = own('staged', '--data', str(tmp_path / 'staged'), '/etc/hostname', 'plain')
    host.connected('staged')
    found = seen(host, 'staged')
    assert found['argv'] == ['/workspace/server.py', '--data', '/workspace', '/etc/hostname', 'plain']
    assert found['cwd'] == '/workspace'
    assert found['files'] == ['server.py']
    output = text_of(host.call('staged', 'run', text='touch /workspace/written; touch /tmp/written && ls /tmp'))
    assert 'Read-only file system' in output and 'written' in output.splitlines()[-1]
    (tmp_path / 'staged' / 'new').touch()
    assert seen(host, 'staged')['files'] == ['new', 'server.py'], 'a new file on the host is not visible'


@pytest.mark.parametrize('mode', ['ro', 'rw'])
def test_directories_without_a_common_parent_are_mounted_side_by_side(tmp_path: Path, mode: str):
    runtime = daemon.Daemon(tmp_path, env={'BOXWOOD_MOUNTS__ALLOWED_ROOTS': '/tmp'})
    made = [Path(tempfile.mkdtemp(dir='/tmp')) for _ in range(3)]
    script, one, other = small(made[0]), made[1], made[2]
    try:
        (one / 'a').write_text('first')
        host = Host(runtime)
        host.add('several', 'python3', str(script), str(one), str(other), box={'host_path_mode': mode})
        host.connected('several')
        _, first, second = seen(host, 'several')['argv']
        output = text_of(host.call('several', 'run', text=f'cat {first}/a; cp {first}/a {second}/b'))
        assert output.startswith('first')
        assert (other / 'b').exists() == (mode == 'rw'), output
        runtime.stop()
    finally:
        runtime.kill()
        for directory in made:
            shutil.rmtree(directory)


def test_a_write_to_the_read_only_directory_fails_with_a_hint(hosting: Host, tmp_path: Path):
    script = small(tmp_path)
    script.write_text("open('log', 'w')\n")
    hosting.add('writes', 'python3', str(script))
    try:
        found = hosting.failed('writes', 30)
        assert 'Read-only file system' in found['error_message']
        assert 'host_path_mode' in found['hint']
    finally:
        hosting.remove('writes')


def test_a_directory_can_be_mounted_writable(hosting: Host, tmp_path: Path):
    script = small(tmp_path)
    settings = {'host_path': str(script.parent), 'host_path_mode': 'rw'}
    hosting.add('writer', 'python3', str(script), box=settings)
    try:
        hosting.connected('writer')
        hosting.call('writer', 'write', text='ours')
        assert (script.parent / 'written').read_text() == 'ours'
    finally:
        hosting.remove('writer')


def test_the_python_of_a_virtual_environment_is_replaced_by_that_of_the_box(own, tmp_path: Path):
    """Also if that Python is a symlink to a path outside the project, as usual."""
    script = small(tmp_path, 'venv-project')
    interpreter = tmp_path / 'venv-project/.venv/bin/python3'
    interpreter.parent.mkdir(parents=True)
    interpreter.symlink_to(sys.executable)
    host = own('other')
    host.add('venved', str(interpreter), str(script))
    try:
        host.connected('venved')
        found = seen(host, 'venved')
        assert found['argv'] == ['/workspace/server.py']
        assert not found['python'].startswith(str(tmp_path))
    finally:
        host.remove('venved')


def test_a_forbidden_directory_is_refused(hosting: Host):
    hosting.add('sneaky', 'python3', '/x.py', box={'host_path': '/etc'})
    try:
        found = hosting.failed('sneaky', 30)
        assert found['error_phase'] == 'session_create', found
        assert '/etc' in found['error_message']
        assert 'box_session_id' not in found
    finally:
        hosting.remove('sneaky')


def test_requirements_are_installed_and_a_failure_names_them(hosting: Host, tmp_path: Path):
    script = small(tmp_path)
    requirements = script.parent / 'requirements.txt'
    requirements.write_text('no-such-package-anywhere==9.9.9\n')
    hosting.add('needy', 'python3', str(script))
    try:
        found = hosting.failed('needy', 240)
        assert found['error_phase'] == 'dep_install'
        assert 'Dependency install failed (exit code ' in found['error_message']
        assert 'no-such-package-anywhere' in found['error_message']
        assert 'no-such-package-anywhere' in hosting.logs('needy')['install']
        requirements.write_text('iniconfig==2.3.1\n')
        hosting.do('needy', 'restart')
        hosting.connected('needy', 240)
    finally:
        hosting.remove('needy')


def test_a_missing_program_fails_in_the_phase_process_start(hosting: Host):
    found = hosting.test('nowhere', 'no-such-program')
    assert found['ok'] is False
    assert found['runtime']['error_phase'] == 'process_start', found
    assert 'no-such-program' in found['runtime']['error_message']


def test_secrets_are_passed_to_the_process_and_never_shown(own):
    host = own('keeper', env={'API_KEY': SECRET})
    host.connected('keeper')
    assert text_of(host.call('keeper', 'env', text='API_KEY')) == SECRET
    output = json.dumps(host.info('keeper')) + json.dumps(host.request('GET', '/v1/mcp/servers'))
    output += json.dumps(host.logs('keeper')) + host.runtime.log()
    shown = [
        ('ls',),
        ('status', 'keeper'),
        ('logs', 'keeper'),
        ('config', 'keeper', '--client', 'claude'),
    ]
    for verb in shown:
        output += host.cli(*verb).stdout
    assert SECRET not in output
    assert host.info('keeper')['env_keys'] == ['API_KEY']
    # Other processes of the box do not have the secret, and other clients have no access to the box.
    first = text_of(host.call('keeper', 'run', text='tr "\\0" "\\n" < /proc/1/environ'))
    assert SECRET not in first
    with pytest.raises(Refused) as refused:
        host.request('POST', '/v1/sessions/mcp-keeper/exec', {'cmd': 'cat /proc/[0-9]*/environ'})
    assert refused.value.status == 403 and 'boxwood mcp' in str(refused.value)
    holders = []
    for path in (host.runtime.state_dir / 'mcp').rglob('*'):
        if path.is_file() and SECRET.encode() in path.read_bytes():
            holders.append(path)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [path.name for path in holders] == ['keeper.json']


def test_a_secret_that_the_server_prints_is_redacted(hosting: Host):
    """Errors and logs contain the name of the variable instead."""
    command = 'echo "bad key $API_KEY" >&2; exit 2'
    found = hosting.test('blabber', 'sh', '-c', command, env={'API_KEY': SECRET})
    assert found['ok'] is False and 'bad key' in found['log']
    assert SECRET not in json.dumps(found)
    hosting.add('blabber', 'sh', '-c', command, env={'API_KEY': SECRET})
    try:
        deadline = time.monotonic() + 30
        while 'bad key' not in hosting.logs('blabber')['stderr']:
            assert time.monotonic() < deadline, hosting.state('blabber')
            time.sleep(0.1)
        output = json.dumps(hosting.info('blabber')) + json.dumps(hosting.logs('blabber'))
        assert SECRET not in output
    finally:
        hosting.remove('blabber')


def test_an_edit_changes_only_the_given_fields(own):
    host = own('edited', env={'ONE': '1', 'TWO': '2'})
    host.connected('edited')
    host.edit('edited', env={'ONE': None, 'THREE': '3'})
    host.connected('edited')
    assert host.info('edited')['env_keys'] == ['THREE', 'TWO']
    assert text_of(host.call('edited', 'env', text='ONE')) == '(none)'
    assert text_of(host.call('edited', 'env', text='TWO')) == '2'
    host.edit('edited', enabled=False)
    assert host.until('edited', 'disabled', 30).get('box_session_id') is None
    assert 'mcp-edited' not in host.sessions()
    host.edit('edited', enabled=True)
    host.connected('edited')


def test_a_server_that_exits_is_restarted(own):
    host = own('leaver')
    host.connected('leaver')
    process_id = seen(host, 'leaver')['process_id']
    host.call('leaver', 'leave', count=7)
    deadline = time.monotonic() + 30
    while (found := host.state('leaver'))['error_phase'] is None and found['status'] == 'connected':
        assert time.monotonic() < deadline, 'the exit was not reported'
        time.sleep(0.02)
    host.connected('leaver', 30)
    assert seen(host, 'leaver')['process_id'] != process_id
    assert 'leaving now' in host.logs('leaver')['stderr']


def test_a_server_that_exits_repeatedly_is_not_restarted_forever(own):
    """Exits are counted even if the server was connected in between."""
    host = own('looper')
    for _ in range(7):
        deadline = time.monotonic() + 60
        while (found := host.state('looper'))['status'] not in ('connected', 'error'):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if found['status'] == 'error':
            break
        host.call('looper', 'leave', count=1)
        while host.state('looper')['status'] == 'connected':
            assert time.monotonic() < deadline
            time.sleep(0.05)
    found = host.failed('looper', 60)
    assert found['error_phase'] == 'runtime', found
    assert found.get('retry_at') is None
    assert found.get('hint')
    host.do('looper', 'start')
    host.connected('looper')


def test_an_idle_server_is_stopped_and_the_next_call_starts_it(own):
    host = own('sleepy')
    host.connected('sleepy')
    host.edit('sleepy', idle_stop_sec=1)
    host.until('sleepy', 'stopped', 30)
    assert 'mcp-sleepy' not in host.sessions()
    assert text_of(host.call('sleepy', 'echo', text='awake')) == 'awake'
    assert host.state('sleepy')['status'] in ('connected', 'stopped')


def test_a_manually_stopped_server_stays_stopped(own):
    host = own('halted')
    host.connected('halted')
    host.do('halted', 'stop')
    host.until('halted', 'stopped', 30)
    with pytest.raises(Refused) as refused:
        host.call('halted', 'echo', text='x')
    assert 'start' in json.dumps(refused.value.body)
    found = host.state('halted')
    assert found['status'] == 'stopped' and 'box_session_id' not in found


def test_a_test_run_leaves_nothing(hosting: Host, tmp_path: Path):
    """Neither box nor process nor file, whether it succeeds or fails."""
    directory = hosting.runtime.state_dir / 'mcp'

    def stored_files() -> set[str]:
        # Installed packages are kept, because a start usually follows a successful test.
        kept = {'greetings', 'cache'}
        return {str(path) for path in directory.rglob('*') if not kept & set(path.parts)}

    sessions, files = hosting.sessions(), stored_files()
    script = small(tmp_path)
    good = hosting.test('trial', 'python3', str(script), env={'API_KEY': SECRET})
    assert good['ok'] is True, good
    assert good['runtime']['status'] == 'connected'
    assert good['runtime']['tool_count'] == 12
    assert good['runtime']['box_session_id'].startswith('mcp-test-')
    assert 'small server is up' in good['log']
    bad = hosting.test('trial', 'sh', '-c', 'echo it is broken >&2; exit 3')
    assert bad['ok'] is False
    assert bad['runtime']['error_phase'] == 'mcp_init', bad
    assert 'it is broken' in bad['log']
    assert 'box_session_id' not in bad['runtime'] or bad['runtime']['box_session_id'].startswith(
        'mcp-test-'
    )
    deadline = time.monotonic() + 10
    while hosting.sessions() - sessions or stored_files() - files:
        assert time.monotonic() < deadline, (hosting.sessions() - sessions, stored_files() - files)
        time.sleep(0.1)
    assert all('trial' not in path for path in stored_files())
    with pytest.raises(Refused) as refused:
        hosting.info('trial')
    assert refused.value.status == 404


def test_a_test_run_of_a_stored_server_has_its_secrets(own):
    host = own('stored', env={'API_KEY': SECRET})
    host.connected('stored')
    before = host.state('stored')
    sessions = host.sessions()
    found = host.test_stored('stored')
    assert found['ok'] is True, found
    assert found['runtime']['box_session_id'].startswith('mcp-test-')
    assert SECRET not in json.dumps(found)
    # The running server is not affected.
    assert host.state('stored')['steps'] == before['steps']
    assert text_of(host.call('stored', 'env', text='API_KEY')) == SECRET
    assert '12 tools' in host.cli('test', 'stored').stdout
    deadline = time.monotonic() + 10
    while host.sessions() - sessions:
        assert time.monotonic() < deadline, host.sessions() - sessions
        time.sleep(0.1)
    # A server that was never started; its output shows whether it has the secret.
    command = f'test "$API_KEY" = "{SECRET[::-1]}" && echo it has its key >&2; exit 1'
    host.add('unstarted', 'sh', '-c', command, env={'API_KEY': SECRET[::-1]}, enabled=False)
    try:
        found = host.test_stored('unstarted')
        assert found['ok'] is False and 'it has its key' in found['log'], found
        assert host.state('unstarted')['status'] == 'disabled'
    finally:
        host.remove('unstarted')


def test_the_test_command(hosting: Host, tmp_path: Path):
    script = small(tmp_path)
    ended = hosting.cli('test', '-o', 'json', '--', 'python3', str(script))
    assert '"ok": true' in ended.stdout or '"ok":true' in ended.stdout
    failed = hosting.cli('test', '--', 'sh', '-c', 'exit 4', may_fail=True)
    assert failed.returncode != 0
    assert 'mcp_init' in failed.stdout + failed.stderr


def test_the_mcp_commands(own):
    host = own('spoken', tools={'deny': ['leave']})
    host.connected('spoken')
    assert 'spoken' in host.cli('ls').stdout
    listed = json.loads(host.cli('tools', 'spoken', '-o', 'json').stdout)
    names = {tool['name'] for tool in (listed['tools'] if isinstance(listed, dict) else listed)}
    assert 'echo' in names and 'leave' not in names
    assert 'hey' in host.cli('call', 'spoken', 'echo', 'text=hey').stdout
    assert 'hoy' in host.cli('call', 'spoken', 'echo', '{"text": "hoy"}').stdout
    failed = host.cli('call', 'spoken', 'fail', may_fail=True)
    assert failed.returncode != 0 and 'it did not work' in failed.stdout + failed.stderr
    assert 'small server is up' in host.cli('logs', 'spoken', '--stderr').stdout
    assert 'tools/call' in host.cli('logs', 'spoken', '--protocol').stdout
    for client in ['claude', 'cursor', 'vscode']:
        pasted = json.loads(host.cli('config', 'spoken', '--client', client).stdout)
        assert 'spoken' in pasted.get('mcpServers', pasted.get('servers', {})), client
    host.cli('disable', 'spoken')
    host.until('spoken', 'disabled', 30)
    host.cli('enable', 'spoken')
    host.connected('spoken')


def test_names_are_unique(own):
    host = own('taken')
    with pytest.raises(Refused) as refused:
        host.add('taken', 'true')
    assert refused.value.status == 409
    with pytest.raises(Refused) as missing:
        host.info('unknown')
    assert missing.value.status == 404


@pytest.mark.parametrize('setting', ['disabled', 'unavailable'])
def test_without_boxes_nothing_is_started(tmp_path: Path, setting: str):
    """Nothing runs on the host instead, and the start is not retried."""
    if setting == 'disabled':
        off = daemon.Daemon(tmp_path, env={'BOX__ENABLED': 'false'})
    else:
        absent = {'DOCKER_HOST': f'unix://{tmp_path}/absent.sock'}
        off = daemon.Daemon(tmp_path, '--backend', 'docker', env=absent)
    host = Host(off)
    marker = tmp_path / 'ran-on-the-host'
    try:
        host.add('refused', 'sh', '-c', f'touch {marker}; cat')
        found = host.failed('refused', 20)
        assert found['error_phase'] == 'box_unavailable'
        message = 'box_disabled_in_config' if setting == 'disabled' else 'box_unavailable'
        assert message in found['error_message']
        assert found['retry_count'] == 0 and found.get('retry_at') is None
        assert 'box_session_id' not in found and 'box_enabled' not in found
        assert found['tools'] == []
        trial = host.test('trial', 'sh', '-c', f'touch {marker}; cat')
        assert trial['ok'] is False
        assert trial['runtime']['error_phase'] == 'box_unavailable'
        assert not marker.exists()
        processes.assert_only(off.pid, daemon.IDLE)
    finally:
        off.stop()


def test_symlinks_in_a_project_are_not_followed(hosting: Host, tmp_path: Path):
    """A symlink stays a symlink; its target is not in the box."""
    outside = tmp_path / 'outside'
    outside.mkdir()
    (outside / 'key').write_text(SECRET)
    script = small(tmp_path, 'linked')
    os.symlink(outside / 'key', script.parent / 'key')
    os.symlink(outside, script.parent / 'all')
    hosting.add('linked', 'python3', str(script))
    try:
        hosting.connected('linked')
        command = 'ls /workspace; cat /workspace/key /workspace/all/key'
        output = text_of(hosting.call('linked', 'run', text=command))
        assert 'server.py' in output and SECRET not in output
    finally:
        hosting.remove('linked')


def test_a_node_project_is_installed_and_runs(hosting: Host, tmp_path: Path):
    """With a dependency, and without `node_modules` on the host."""
    if shutil.which('npm') is None:
        pytest.fail('npm is missing: run `cargo xtask test --only mcp`')
    project = tmp_path / 'node-project'
    project.mkdir()
    package = {'name': 'own', 'version': '1.0.0', 'dependencies': {'ms': '2.1.3'}}
    (project / 'package.json').write_text(json.dumps(package))
    (project / 'server.js').write_text(
        """
const ms = require('ms');
require('readline').createInterface({input: process.stdin}).on('line', (line) => {
  const {id, method} = JSON.parse(line);
  if (id === undefined) return;
  let result = {};
  if (method === 'initialize') result = {protocolVersion: '2025-11-25', capabilities: {tools: {}}, serverInfo: {name: 'own', version: '1'}};
  if (method === 'tools/list') result = {tools: [{name: 'day', inputSchema: {type: 'object'}}]};
  if (method === 'tools/call') result = {content: [{type: 'text', text: String(ms('1d'))}]};
  process.stdout.write(JSON.stringify({jsonrpc: '2.0', id, result}) + '\\n');
});
"""
    )
    hosting.add('node-own', 'node', str(project / 'server.js'))
    try:
        hosting.connected('node-own', 120)
        assert text_of(hosting.call('node-own', 'day')) == '86400000'
        assert not (project / 'node_modules').exists()
    finally:
        hosting.remove('node-own')


def test_the_routes_are_in_the_openapi_document(hosting: Host):
    document = json.dumps(hosting.request('GET', '/openapi.json'))
    for path in ['', '/{name}', '/{name}/start', '/{name}/stop', '/{name}/restart', '/{name}/logs']:
        assert f'"/v1/mcp/servers{path}"' in document, path
    for path in ['/v1/mcp/import', '/v1/mcp/test', '/v1/mcp/servers/{name}/tools/{tool}']:
        assert f'"{path}"' in document, path


def test_a_removed_server_leaves_nothing(hosting: Host, tmp_path: Path):
    script = small(tmp_path)
    # The process is found by its command line on the whole host, so the argument is unique.
    mark = f'gone-{uuid.uuid4().hex}'
    hosting.add('gone', 'python3', str(script), mark, env={'API_KEY': SECRET})
    hosting.connected('gone')
    running = ['pgrep', '-f', f'/workspace/server.py {mark}']
    assert len(subprocess.run(running, capture_output=True).stdout.split()) == 1
    hosting.remove('gone')
    assert 'mcp-gone' not in hosting.sessions()
    left = [p for p in (hosting.runtime.state_dir / 'mcp').rglob('*') if p.stem == 'gone']
    assert left == []
    assert subprocess.run(running, capture_output=True).stdout == b''
