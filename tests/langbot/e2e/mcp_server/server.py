"""An MCP server on stdin and stdout that uses only the standard library."""

import json
import os
import socket
import sys

TOOLS = [
    {
        'name': 'add_numbers',
        'description': 'Adds two numbers',
        'inputSchema': {
            'type': 'object',
            'properties': {'a': {'type': 'integer'}, 'b': {'type': 'integer'}},
            'required': ['a', 'b'],
        },
    },
    {
        'name': 'where_am_i',
        'description': 'Returns the environment of the server, and whether a path exists there',
        'inputSchema': {
            'type': 'object',
            'properties': {'path': {'type': 'string'}},
            'required': ['path'],
        },
    },
    {
        'name': 'long_line',
        'description': 'Returns this many letters in one line',
        'inputSchema': {
            'type': 'object',
            'properties': {'length': {'type': 'integer'}},
            'required': ['length'],
        },
    },
]


RESOURCE = {
    'uri': 'e2e://place',
    'name': 'place',
    'description': 'Where this server runs',
    'mimeType': 'application/json',
}


def location(path):
    return json.dumps(
        {
            'cwd': os.getcwd(),
            'hostname': socket.gethostname(),
            'sees_path': os.path.exists(path),
            'greeting': os.environ.get('GREETING'),
        }
    )


def call(name, arguments):
    if name == 'add_numbers':
        return str(arguments['a'] + arguments['b'])
    if name == 'where_am_i':
        return location(arguments['path'])
    if name == 'long_line':
        return 'x' * arguments['length']
    raise ValueError(f'there is no tool {name}')


def answer(method, params):
    if method == 'initialize':
        return {
            'protocolVersion': params['protocolVersion'],
            'capabilities': {'tools': {}, 'resources': {}},
            'serverInfo': {'name': 'e2e', 'version': '1'},
        }
    if method == 'tools/list':
        return {'tools': TOOLS}
    if method == 'tools/call':
        text = call(params['name'], params.get('arguments') or {})
        return {'content': [{'type': 'text', 'text': text}], 'isError': False}
    if method == 'resources/list':
        return {'resources': [RESOURCE]}
    if method == 'resources/templates/list':
        return {'resourceTemplates': []}
    if method == 'resources/read':
        # A box must not see the machine id of the host.
        text = location('/etc/machine-id')
        return {'contents': [{**RESOURCE, 'text': text}]}
    if method == 'ping':
        return {}
    raise ValueError(f'there is no method {method}')


def main():
    print('ready', file=sys.stderr, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if 'id' not in request:
            continue
        reply = {'jsonrpc': '2.0', 'id': request['id']}
        try:
            reply['result'] = answer(request['method'], request.get('params') or {})
        except Exception as error:
            reply['error'] = {'code': -32603, 'message': str(error)}
        print(json.dumps(reply), flush=True)


if __name__ == '__main__':
    main()
