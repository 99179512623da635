"""Starts a real LangBot with a box runtime and uses it over its API and its chat.

`cargo xtask e2e-langbot` calls this. With `--langbot-box-python` the runtime is
LangBot Box, to find out whether a failure is caused by Boxwood or by the step.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable

import steps_chat
import steps_mcp
import steps_skills
import steps_v0_7
from programs import ProgramFailed, processes_using
from environment import NotApplicable, Paths, Environment

Step = Callable[[Environment], Awaitable[None]]
# By wire format between LangBot and its runtime.
STEPS: dict[str, list[Step]] = {
    'v0_4': [*steps_chat.STEPS, *steps_skills.STEPS, *steps_mcp.STEPS],
    'v0_7': steps_v0_7.STEPS,
}
LOG_TAIL_LINES = 80


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    runtime = parser.add_mutually_exclusive_group(required=True)
    runtime.add_argument('--boxwood', type=pathlib.Path, help='the `boxwood` program')
    runtime.add_argument('--langbot-box-python', type=pathlib.Path, help='a Python with LangBot Box')
    parser.add_argument('--langbot-python', type=pathlib.Path, default=pathlib.Path(sys.executable))
    parser.add_argument('--keep', action='store_true', help='keep the directory of this run')
    parser.add_argument('--logs', type=pathlib.Path, required=True)
    parser.add_argument(
        '--skip', action='append', default=[], metavar='STEP', help='skip this step; can be repeated'
    )
    parser.add_argument('--wire-format', choices=STEPS, default='v0_4')
    arguments = vars(parser.parse_args())
    steps = STEPS[arguments.pop('wire_format')]
    skipped = arguments.pop('skip')
    steps = [step for step in steps if step.__name__ not in skipped]
    keep = arguments.pop('keep')
    logs: pathlib.Path = arguments['logs']
    logs.mkdir(parents=True, exist_ok=True)
    for old in logs.glob('*.log'):
        old.unlink()
    # On SIGTERM, stop the daemons and remove the directory as at a normal exit.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = pathlib.Path(tempfile.mkdtemp(prefix='boxwood-e2e-'))
    # Boxes run as other users, which must be able to traverse this directory.
    work.chmod(0o755)
    try:
        return 0 if asyncio.run(run(Paths(work=work, **arguments), steps)) else 1
    finally:
        if keep:
            print(f'kept: {work}', flush=True)
        else:
            shutil.rmtree(work)


async def run(paths: Paths, steps: list[Step]) -> bool:
    environment = Environment(paths)
    passed = 0
    started = time.monotonic()
    try:
        for step in [start, *steps]:
            step_started = time.monotonic()
            try:
                await step(environment)
            except NotApplicable as reason:
                print(f'not applicable: {step.__name__}: {reason}', flush=True)
                continue
            except Exception as error:
                print(f'FAILED {step.__name__}: {error}', flush=True)
                if not isinstance(error, (AssertionError, ProgramFailed)):
                    traceback.print_exc()
                show_logs(paths.logs)
                return False
            passed += 1
            print(f'ok     {step.__name__:<38} {time.monotonic() - step_started:6.1f} s', flush=True)
        status = await stop_and_check(environment)
        if status is not None:
            print(f'FAILED nothing_is_left_behind: {status}', flush=True)
            show_logs(paths.logs)
            return False
        print('ok     nothing_is_left_behind', flush=True)
        print(f'{passed + 1} steps passed in {time.monotonic() - started:.0f} s', flush=True)
        return True
    finally:
        await environment.tear_down()


async def start(environment: Environment) -> None:
    """Starts the runtime and LangBot in a new directory, and creates a user."""
    await environment.set_up()


async def stop_and_check(environment: Environment) -> str | None:
    """Stops both programs; returns a description of what is left over, or None."""
    if hasattr(environment, 'chat'):
        await environment.chat.close()
    environment.langbot_program.stop(timeout_sec=10)
    status = environment.runtime.stop()
    if environment.on_boxwood and status != 0:
        return f'the daemon exited with status {status}'
    left = processes_using(environment.paths.work, excluded=[os.getpid(), os.getppid()])
    if left and environment.on_boxwood:
        return 'processes: ' + '; '.join(left)
    mounts = pathlib.Path('/proc/self/mountinfo').read_text()
    if environment.paths.work.name in mounts:
        return f'mounts below {environment.paths.work}'
    return None


def show_logs(logs: pathlib.Path) -> None:
    for log in sorted(logs.glob('*.log')):
        lines = log.read_text(errors='replace').splitlines()
        print(f'\n── last lines of {log} ──')
        print('\n'.join(lines[-LOG_TAIL_LINES:]), flush=True)


if __name__ == '__main__':
    sys.exit(main())
