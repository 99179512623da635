"""The command line of the official Inspector: every tool, over both transports."""

from __future__ import annotations

import pytest

from support.clients import PROTOCOLS, TRANSPORTS, Inspector
from support.every_tool import NAMES, calls


@pytest.mark.parametrize('transport', TRANSPORTS)
def test_every_tool(runtime, transport: str):
    inspector = Inspector(runtime, transport, 'legacy', f'inspector-{transport}')
    listed = inspector.run('--method', 'tools/list', '--strict')
    assert {tool['name'] for tool in listed['tools']} == NAMES
    for call in calls(f'inspector-{transport}'):
        result = inspector.call(call.name, call.arguments)
        assert not result.get('isError'), f'{call.name}: {result}'
        assert call.check(result['structuredContent']), f'{call.name}: {result}'


@pytest.mark.parametrize('transport', TRANSPORTS)
def test_the_modern_protocol_version(runtime, transport: str):
    inspector = Inspector(runtime, transport, PROTOCOLS[1], f'inspector-modern-{transport}')
    listed = inspector.run('--method', 'tools/list', '--strict')
    assert {tool['name'] for tool in listed['tools']} == NAMES
    result = inspector.call('exec', {'command': 'echo modern'})
    assert result['structuredContent']['stdout'] == 'modern\n'
    failed = inspector.call('exec', {'command': 'exit 1'}, may_fail=True)
    assert failed['isError'] and failed['structuredContent']['exit_code'] == 1


@pytest.mark.parametrize('transport', TRANSPORTS)
def test_workspace_files_are_resources(runtime, transport: str):
    session = f'inspector-files-{transport}'
    inspector = Inspector(runtime, transport, 'legacy', session)
    assert inspector.run('--method', 'resources/list')['resources'] == []
    inspector.call('write', {'path': '/workspace/a b.md', 'content': 'text'})
    listed = inspector.run('--method', 'resources/list')['resources']
    assert [(r['uri'], r['mimeType']) for r in listed] == [
        ('boxwood://workspace/a%20b.md', 'text/markdown')
    ]
    read = inspector.run('--method', 'resources/read', '--uri', listed[0]['uri'])
    assert read['contents'][0]['text'] == 'text'
    templates = inspector.run('--method', 'resources/templates/list')
    assert templates['resourceTemplates'][0]['uriTemplate'] == 'boxwood://workspace/{+path}'
