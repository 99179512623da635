"""A language model that makes scripted tool calls."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

from aiohttp import web

API_KEY = 'not-a-secret'
MODEL = 'scripted'


@dataclasses.dataclass(frozen=True)
class ToolCall:
    name: str
    arguments: dict[str, Any]


@dataclasses.dataclass
class Script:
    """One turn of a chat: tool calls one after the other, then a text with their results."""

    marker: str
    calls: list[ToolCall]
    ids: list[str] = dataclasses.field(default_factory=list)
    # The results that the model received, in the order of the calls.
    results: list[str] = dataclasses.field(default_factory=list)
    offered_tools: list[str] = dataclasses.field(default_factory=list)
    messages: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    finished: bool = False


class FakeModel:
    def __init__(self) -> None:
        self._script: Script | None = None
        self._call_ids = itertools.count(1)
        self._runner: web.AppRunner | None = None
        # Why the last request was refused, for the message of a failed step.
        self.last_error: str | None = None

    async def start(self, port: int) -> None:
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_post('/v1/chat/completions', self._complete)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, '127.0.0.1', port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def play(self, script: Script) -> None:
        self._script = script
        self.last_error = None

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        try:
            self._check(request, body)
            call, text = self._next(body)
        except ScriptViolated as violation:
            self.last_error = str(violation)
            return web.json_response({'error': {'message': str(violation)}}, status=400)
        if body.get('stream'):
            return await self._stream(request, call, text)
        return web.json_response(self._whole(call, text))

    def _check(self, request: web.Request, body: dict[str, Any]) -> None:
        if request.headers.get('Authorization') != f'Bearer {API_KEY}':
            raise ScriptViolated('the request carries another key')
        if body.get('model') != MODEL:
            raise ScriptViolated(f'the request is for model {body.get("model")!r}')
        if self._script is None or self._script.finished:
            raise ScriptViolated('unexpected request')

    def _next(self, body: dict[str, Any]) -> tuple[tuple[str, ToolCall] | None, str]:
        """Returns the next tool call with its id, or None and the final text."""
        script = self._script
        assert script is not None
        script.offered_tools = [tool['function']['name'] for tool in body.get('tools') or []]
        script.messages = body['messages']
        last = body['messages'][-1]
        if script.ids:
            if last['role'] != 'tool' or last.get('tool_call_id') != script.ids[-1]:
                raise ScriptViolated(
                    f'the result of {script.ids[-1]} was expected, not {json.dumps(last)[:400]}'
                )
            script.results.append(text_of(last['content']))
        elif last['role'] != 'user' or script.marker not in text_of(last['content']):
            raise ScriptViolated(f'the message of the user was expected, not {json.dumps(last)[:400]}')
        if len(script.ids) < len(script.calls):
            call = script.calls[len(script.ids)]
            if call.name not in script.offered_tools:
                raise ScriptViolated(f'`{call.name}` is not among {script.offered_tools}')
            call_id = f'call_{next(self._call_ids)}'
            script.ids.append(call_id)
            return (call_id, call), ''
        script.finished = True
        return None, f'{script.marker}: the tools answered\n' + '\n'.join(script.results)

    def _whole(self, call: tuple[str, ToolCall] | None, text: str) -> dict[str, Any]:
        message: dict[str, Any] = {'role': 'assistant', 'content': text or None}
        if call is not None:
            message['tool_calls'] = [_tool_call(*call)]
        return {
            'id': 'completion',
            'object': 'chat.completion',
            'created': 0,
            'model': MODEL,
            'choices': [
                {
                    'index': 0,
                    'message': message,
                    'finish_reason': 'stop' if call is None else 'tool_calls',
                }
            ],
            'usage': {'prompt_tokens': 1, 'completion_tokens': 1, 'total_tokens': 2},
        }

    async def _stream(
        self, request: web.Request, call: tuple[str, ToolCall] | None, text: str
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={'Content-Type': 'text/event-stream'})
        await response.prepare(request)
        deltas: list[dict[str, Any]] = [{'role': 'assistant', 'content': ''}]
        if call is None:
            deltas += [{'content': piece} for piece in _pieces(text)]
        else:
            whole = {'index': 0, **_tool_call(*call)}
            arguments = whole['function']['arguments']
            # Real models stream the name first and then the arguments in pieces.
            whole['function'] = {'name': call[1].name, 'arguments': ''}
            deltas.append({'tool_calls': [whole]})
            deltas += [
                {'tool_calls': [{'index': 0, 'function': {'arguments': piece}}]}
                for piece in _pieces(arguments)
            ]
        finish = 'stop' if call is None else 'tool_calls'
        for delta, finish_reason in [(delta, None) for delta in deltas] + [({}, finish)]:
            chunk = {
                'id': 'completion',
                'object': 'chat.completion.chunk',
                'created': 0,
                'model': MODEL,
                'choices': [{'index': 0, 'delta': delta, 'finish_reason': finish_reason}],
            }
            await response.write(f'data: {json.dumps(chunk)}\n\n'.encode())
        await response.write(b'data: [DONE]\n\n')
        await response.write_eof()
        return response


class ScriptViolated(Exception):
    """LangBot sent a request that the script does not contain."""


def text_of(content: Any) -> str:
    """The text of a message, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    return '\n'.join(part.get('text', '') for part in content or [])


def _tool_call(call_id: str, call: ToolCall) -> dict[str, Any]:
    return {
        'id': call_id,
        'type': 'function',
        'function': {'name': call.name, 'arguments': json.dumps(call.arguments)},
    }


def _pieces(text: str) -> list[str]:
    size = max(1, len(text) // 3)
    return [text[start : start + size] for start in range(0, len(text), size)]
