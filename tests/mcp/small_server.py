"""An MCP server in one file, without dependencies, over stdio.

It supports only the legacy protocol version, so that modern clients depend on the gateway. Its tools report what the
server sees of its box: arguments, directory, environment, cancelled calls.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
import uuid

#: Random for each process, so that a client can tell whether it reached the same process.
PROCESS_ID = uuid.uuid4().hex

TEXT = {'type': 'object', 'properties': {'text': {'type': 'string'}}}
NUMBER = {'type': 'object', 'properties': {'count': {'type': 'integer'}}}
NOTHING = {'type': 'object', 'properties': {}}

TOOLS = {
    'echo': ('Returns the text.', TEXT),
    'whoami': ('Returns what the server sees of its box.', NOTHING),
    'env': ('Returns an environment variable.', TEXT),
    'run': ('Runs a shell command in the box.', TEXT),
    'write': ('Writes to a file in the working directory.', TEXT),
    'nap': ('Sleeps for `count` tenths of a second, with progress.', NUMBER),
    'cancelled': ('Returns the calls that were cancelled.', NOTHING),
    'big': ('Returns a text of `count` bytes.', NUMBER),
    'odd': ('Returns fields and content that the protocol does not define.', NOTHING),
    'fail': ('Fails.', NOTHING),
    'leave': ('Exits the process.', NUMBER),
    'ask': ('Requests an elicitation from the client.', TEXT),
}

_out = threading.Lock()
_cancelled: dict[object, threading.Event] = {}
_was_cancelled: list[str] = []
_questions: dict[object, queue.Queue] = {}


def send(message: dict) -> None:
    with _out:
        sys.stdout.write(json.dumps({'jsonrpc': '2.0', **message}) + '\n')
        sys.stdout.flush()


def text(content: str, **more) -> dict:
    return {'content': [{'type': 'text', 'text': content}], **more}


def nap(tenths: int, request_id: object, token: object) -> dict | None:
    ended = _cancelled.setdefault(request_id, threading.Event())
    for done in range(tenths):
        if ended.wait(0.1):
            _was_cancelled.append(f'nap {tenths}')
            return None
        if token is not None:
            params = {'progressToken': token, 'progress': done + 1, 'total': tenths}
            send({'method': 'notifications/progress', 'params': params})
    return text(f'slept {tenths}')


def elicit(message: str) -> dict:
    question = f'question-{uuid.uuid4().hex}'
    answers: queue.Queue = queue.Queue(1)
    _questions[question] = answers
    schema = {'type': 'object', 'properties': {'name': {'type': 'string'}}}
    params = {'message': message, 'requestedSchema': schema}
    send({'id': question, 'method': 'elicitation/create', 'params': params})
    answer = answers.get(timeout=30)
    return text(json.dumps(answer.get('result') or answer.get('error'), sort_keys=True))


def call(name: str, arguments: dict, request_id: object, token: object) -> dict | None:
    if name == 'echo':
        return text(arguments.get('text', ''))
    if name == 'whoami':
        seen = {
            'process_id': PROCESS_ID,
            'argv': sys.argv,
            'cwd': os.getcwd(),
            'python': sys.executable,
            'files': sorted(os.listdir('.')),
        }
        return text(json.dumps(seen), structuredContent=seen)
    if name == 'env':
        return text(os.environ.get(arguments['text'], '(none)'))
    if name == 'run':
        ended = subprocess.run(['sh', '-c', arguments['text']], stdin=subprocess.DEVNULL, capture_output=True)
        return text((ended.stdout + ended.stderr).decode(errors='replace'))
    if name == 'write':
        with open('written', 'w') as file:
            file.write(arguments['text'])
        return text('written')
    if name == 'nap':
        return nap(arguments['count'], request_id, token)
    if name == 'cancelled':
        return text(json.dumps(_was_cancelled))
    if name == 'big':
        return text('x' * arguments['count'])
    if name == 'odd':
        odd = {'type': 'hologram', 'depth': 3, 'x-more': {'a': [1, 2.50, None]}}
        return {'content': [odd], 'x-unknown': {'kept': True}, '_meta': {'example.org/a': 'b'}}
    if name == 'fail':
        return text('it did not work', isError=True)
    if name == 'leave':
        send({'id': request_id, 'result': text('bye')})
        sys.stderr.write('leaving now\n')
        sys.stderr.flush()
        os._exit(arguments.get('count', 0))
    if name == 'ask':
        return elicit(arguments.get('text', 'who?'))
    return text(f'there is no tool {name}', isError=True)


def serve(message: dict) -> None:
    request_id, method = message['id'], message['method']
    params = message.get('params') or {}
    if method == 'initialize':
        result = {
            'protocolVersion': params.get('protocolVersion', '2025-11-25'),
            'capabilities': {'tools': {'listChanged': True}, 'prompts': {}, 'resources': {}},
            'serverInfo': {'name': 'small', 'version': '1.0'},
            'instructions': 'A small server.',
        }
    elif method == 'ping':
        result = {}
    elif method == 'tools/list':
        tools = [
            {'name': name, 'description': about, 'inputSchema': schema}
            for name, (about, schema) in TOOLS.items()
        ]
        result = {'tools': tools}
    elif method == 'tools/call':
        token = (params.get('_meta') or {}).get('progressToken')
        result = call(params['name'], params.get('arguments') or {}, request_id, token)
        if result is None:
            return
    elif method == 'prompts/list':
        result = {'prompts': [{'name': 'greet', 'description': 'Greets.'}]}
    elif method == 'prompts/get':
        content = {'type': 'text', 'text': f'Hello from {PROCESS_ID}'}
        result = {'messages': [{'role': 'user', 'content': content}]}
    elif method == 'resources/list':
        result = {'resources': [{'uri': 'note://a b/ü?x=1', 'name': 'note'}]}
    elif method == 'resources/read':
        result = {'contents': [{'uri': params['uri'], 'text': f'note of {PROCESS_ID}'}]}
    else:
        send({'id': request_id, 'error': {'code': -32601, 'message': f'no method {method}'}})
        return
    send({'id': request_id, 'result': result})


def main() -> None:
    time.sleep(float(os.environ.get('SLEEPS_SEC', '0')))
    sys.stderr.write('small server is up\n')
    sys.stderr.flush()
    for line in sys.stdin:
        message = json.loads(line)
        if 'method' not in message:
            waiting = _questions.pop(message.get('id'), None)
            if waiting is not None:
                waiting.put(message)
        elif 'id' in message:
            threading.Thread(target=serve, args=(message,), daemon=True).start()
        elif message['method'] == 'notifications/cancelled':
            request_id = message['params']['requestId']
            _cancelled.setdefault(request_id, threading.Event()).set()


main()
