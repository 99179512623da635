"""One call of every tool. Calls use files and skills of the calls before them.

`check` gets the structured result. Each client uses its own skill name, so that several can share one daemon.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

NAMES = {'exec', 'read', 'write', 'edit', 'glob', 'grep', 'activate', 'register_skill'}


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict
    check: Callable[[dict], bool]


def calls(skill: str) -> list[Call]:
    entry = f'---\nname: {skill}\ndescription: Greets.\n---\nSay hello.\n'
    return [
        Call(
            'write',
            {'path': '/workspace/hello.py', 'content': "print('hi there')\n"},
            lambda got: got['created'] and got['size'] == 18,
        ),
        Call(
            'read',
            {'path': '/workspace/hello.py'},
            lambda got: 'hi there' in got['content'],
        ),
        Call(
            'edit',
            {'path': '/workspace/hello.py', 'old_string': 'hi there', 'new_string': 'hello'},
            lambda got: got['replaced'] == 1 and "+print('hello')" in got['diff'],
        ),
        Call(
            'glob',
            {'path': '/workspace', 'pattern': '*.py'},
            lambda got: got['matches'] == ['/workspace/hello.py'],
        ),
        Call(
            'grep',
            # The workspace also contains the files and skills of other clients.
            {'path': '/workspace', 'pattern': 'print.*hel+o'},
            lambda got: got['matches'][0]['line'] == 1,
        ),
        Call(
            'exec',
            {'command': 'python3 /workspace/hello.py; pwd'},
            lambda got: got['stdout'] == 'hello\n/workspace\n' and got['exit_code'] == 0,
        ),
        Call(
            'write',
            {'path': f'/workspace/{skill}/SKILL.md', 'content': entry},
            lambda got: got['created'],
        ),
        Call(
            'register_skill',
            {'path': f'/workspace/{skill}'},
            lambda got: got['skill_name'] == skill,
        ),
        Call(
            'activate',
            {'skill_name': skill},
            lambda got: got['activated'] and 'Say hello.' in str(got),
        ),
    ]


assert {call.name for call in calls('x')} == NAMES
