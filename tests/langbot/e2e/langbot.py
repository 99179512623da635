"""Clients of LangBot: its admin API and its web chat."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import aiohttp
import websockets

from fake_model import API_KEY, MODEL, FakeModel, Script, ToolCall

USER = {'user': 'operator@example.com', 'password': 'e2e-password'}
TURN_SEC = 120.0


class LangBotRefused(Exception):
    """The admin API answered with an error."""

    def __init__(self, what: str, status: int, message: str) -> None:
        super().__init__(f'{what}: {status}: {message}')
        self.status = status
        self.message = message


class LangBot:
    def __init__(self, base_url: str, model: FakeModel) -> None:
        self._base_url = base_url
        self._model = model
        self._token: str | None = None
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))
        self.pipeline_uuid = ''

    async def close(self) -> None:
        await self._http.close()

    async def call(self, method: str, path: str, **request: Any) -> Any:
        headers = {'Authorization': f'Bearer {self._token}'} if self._token else {}
        url = f'{self._base_url}/api/v1{path}'
        async with self._http.request(method, url, headers=headers, **request) as response:
            text = await response.text()
        try:
            body = json.loads(text)
        except json.JSONDecodeError:
            body = {'code': -1, 'msg': text[:2000]}
        if response.status != 200 or body.get('code') != 0:
            raise LangBotRefused(f'{method} {path}', response.status, str(body.get('msg')))
        return body.get('data')

    async def get(self, path: str, **request: Any) -> Any:
        return await self.call('GET', path, **request)

    async def post(self, path: str, body: Any) -> Any:
        return await self.call('POST', path, json=body)

    async def put(self, path: str, body: Any) -> Any:
        return await self.call('PUT', path, json=body)

    async def upload(self, path: str, filename: str, content: bytes, **fields: list[str]) -> Any:
        form = aiohttp.FormData()
        form.add_field('file', content, filename=filename, content_type='application/zip')
        for name, values in fields.items():
            for value in values:
                form.add_field(name, value)
        return await self.call('POST', path, data=form)

    async def sign_in(self) -> None:
        """Creates the first user and signs in."""
        await self.post('/user/init', USER)
        self._token = (await self.post('/user/auth', USER))['token']

    async def set_up_a_chat(self, model_url: str) -> None:
        """Configures the model in the default pipeline, like the setup wizard."""
        model_uuid = (
            await self.post(
                '/provider/models/llm',
                {
                    'name': MODEL,
                    'provider': {
                        'requester': 'openai-chat-completions',
                        'base_url': model_url,
                        'api_keys': [API_KEY],
                    },
                    'abilities': ['func_call'],
                    'extra_args': {},
                },
            )
        )['uuid']
        self.pipeline_uuid = await self._default_pipeline()
        pipeline = (await self.get(f'/pipelines/{self.pipeline_uuid}'))['pipeline']
        config = pipeline['config']
        config['ai']['local-agent']['model'] = {'primary': model_uuid, 'fallbacks': []}
        # The default rate limit is too low for the steps.
        config['safety']['rate-limit']['limitation'] = 10_000
        await self.put(f'/pipelines/{self.pipeline_uuid}', {'config': config})

    async def _default_pipeline(self) -> str:
        for pipeline in (await self.get('/pipelines'))['pipelines']:
            if pipeline['is_default']:
                return pipeline['uuid']
        created = await self.post('/pipelines', {'name': 'e2e', 'description': 'e2e', 'emoji': ''})
        return created['uuid']

    async def open_chat(self) -> Chat:
        """Opens a chat like a browser window. Each chat has its own box session."""
        where = self._base_url.replace('http://', 'ws://')
        # LangBot refuses a WebSocket without an `Origin` header.
        socket = await websockets.connect(
            f'{where}/api/v1/pipelines/{self.pipeline_uuid}/ws/connect?session_type=person',
            origin=self._base_url,
            max_size=16 * 1024 * 1024,
        )
        hello = json.loads(await asyncio.wait_for(socket.recv(), timeout=30))
        if hello.get('type') != 'connected':
            raise LangBotRefused('chat', 0, json.dumps(hello))
        return Chat(socket, self._model)


class Chat:
    _turns = itertools.count(1)

    def __init__(self, socket: websockets.ClientConnection, model: FakeModel) -> None:
        self._socket = socket
        self._model = model

    async def close(self) -> None:
        await self._socket.close()

    async def send(self, *calls: ToolCall, stream: bool = True) -> Turn:
        """Sends a message; the model makes these tool calls and then replies with their results."""
        script = Script(marker=f'turn-{next(self._turns)}', calls=list(calls))
        self._model.play(script)
        message = {
            'type': 'message',
            'message': [{'type': 'Plain', 'text': f'{script.marker}: please use your tools'}],
            'stream': stream,
        }
        await self._socket.send(json.dumps(message))
        try:
            async with asyncio.timeout(TURN_SEC):
                reply = await self._reply(script)
        except TimeoutError:
            done = f'{len(script.results)} of {len(calls)} tool calls'
            raise AssertionError(
                f'no reply after {TURN_SEC:.0f} s ({done} done; model: {self._model.last_error})'
            ) from None
        return Turn(script, reply)

    async def _reply(self, script: Script) -> str:
        while True:
            frame = json.loads(await self._socket.recv())
            if frame.get('type') == 'error':
                raise AssertionError(f'the chat failed: {frame}')
            if frame.get('type') != 'response':
                continue
            content = frame['data']['content']
            if frame['data']['is_final'] and script.finished and script.marker in content:
                return content
            if 'Request failed' in content:
                raise AssertionError(f'LangBot replied {content!r}; model: {self._model.last_error}')


class Turn:
    """The tool results that the model received, and the reply in the chat."""

    def __init__(self, script: Script, reply: str) -> None:
        self.results = script.results
        self.offered_tools = script.offered_tools
        self.messages = script.messages
        self.reply = reply

    def objects(self) -> list[dict[str, Any]]:
        """The results as JSON. The result of a failed tool is `err: …`, which raises an error."""
        parsed = []
        for result in self.results:
            try:
                parsed.append(json.loads(result))
            except json.JSONDecodeError:
                raise AssertionError(f'the tool failed: {result}') from None
        return parsed

    def only(self) -> dict[str, Any]:
        (only,) = self.objects()
        return only
