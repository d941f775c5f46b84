"""Verifies in git's history that each claim's criterion was committed before its first result, and kept."""

import ast
import json
import os
import pathlib
import subprocess
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from transformer.config import ConfigError

FOLDER = pathlib.Path(__file__).parent
RESULTS = FOLDER.parent / 'results' / 'claims'
# Folders of experiments whose code claims use.
_SHARED = ('tables', 'sweeps', 'speed')
# Claims that were measured again after a change of the criterion: the last commit whose result does not
# count, and what was changed.
SUPERSEDED = {
    'bottleneck': ('9b4f169', '400 updates became 300, to save time'),
    'offsets': ('8c51829', 'the wording named offsets that were not measured'),
    'head_count': ('3ef1e08', '600 updates became 300, to save time'),
    'heads': ('709c0c7d', 'a second training was added'),
    'pronoun': ('709c0c7d', 'a second training was added'),
}


class Checked(NamedTuple):
    """A claim's check in git's history.

    Attributes:
      wrong: what is wrong, or '' if nothing is.
      code: which code measured the committed result, or '' without one.
    """

    claim: str
    wrong: str
    code: str


def check(
    criteria: Mapping[str, str],
    modules: pathlib.Path = FOLDER,
    results: pathlib.Path = RESULTS,
    superseded: Mapping[str, tuple[str, str]] = SUPERSEDED,
) -> list[Checked]:
    """Checks claims, given their present criteria by name; `modules` has a file for each.

    Raises:
      ConfigError: git's history is missing.
    """
    git = _Git(modules, results)
    return [git.check(name, text, superseded.get(name)) for name, text in criteria.items()]


class _Git:
    """Git's history of the folders of claims and results."""

    def __init__(self, modules: pathlib.Path, results: pathlib.Path):
        self.modules, self.results = modules, results
        shallow = self._run('rev-parse', '--is-shallow-repository', missing='')
        if shallow != 'false\n':
            has = 'a shallow clone; `git fetch --unshallow` gets it' if shallow else 'not in a git checkout'
            raise ConfigError(f"--check: needs git's history, and this is {has}")

    def _run(self, *words: str, missing: str | None = None) -> str:
        """Runs git in the folder of modules. Where git fails, returns `missing`, if not None."""
        try:
            call = ('git', '-C', str(self.modules), *words)
            return subprocess.run(call, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            if missing is None:
                raise
            return missing

    def check(self, name: str, criterion: str, superseded: tuple[str, str] | None) -> Checked:
        """Checks one claim."""
        file = self.results / f'{name}.json'
        # The commits that added or changed the result, not those that deleted it.
        words = ('log', '--reverse', '--diff-filter=AM', '--format=%h', '--', str(file))
        log = self._run(*words, missing='').split()
        if superseded:
            cut = self._run('rev-parse', '--short', superseded[0], missing='').strip()
            log = log[log.index(cut) + 1 :] if cut in log else log
        if not log:
            return Checked(name, '', '')
        texts = {commit: json.loads(self._show(commit, file))['criterion'] for commit in log}
        first = log[0]
        changed = [commit for commit in log if texts[commit] != texts[first]]
        wrong = ''
        parents = self._run('log', '-1', '--format=%p', first).split()
        if not any(self._has(parent, first, name) for parent in parents):
            wrong = f'its criterion was not committed before its first result ({first})'
        elif changed or criterion != texts[first]:
            where = f' in {changed[0]}' if changed else ''
            wrong = f'its criterion was changed{where} after its first result ({first})'
        code = self._code(name, json.loads(self._show(log[-1], file)))
        if superseded:
            code = f'{code}; results up to {superseded[0]} do not count ({superseded[1]})'
        return Checked(name, wrong, code)

    def _show(self, commit: str, file: pathlib.Path) -> str:
        # A path that begins with ./ is relative to git's working directory.
        return self._run('show', f'{commit}:./{os.path.relpath(file, self.modules)}', missing='')

    def _has(self, parent: str, commit: str, name: str) -> bool:
        """Returns whether a commit's criterion, with all that it is made of, was the same in its parent."""
        before, after = (list(self._definitions(c, name, 'CRITERION')) for c in (parent, commit))
        return bool(after) and before == after

    def _definitions(self, commit: str, module: str, name: str) -> Iterator[str]:
        """Yields a name's value and, recursively, the values of the names in it, also of other claims."""
        tree = ast.parse(self._show(commit, self.modules / f'{module}.py'))
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and any(name == part.name for part in node.names):
                yield from self._definitions(commit, node.module.rpartition('.')[2], name)
        for value in _values(tree, name):
            yield ast.dump(value)
            for part in ast.walk(value):
                if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
                    yield from self._definitions(commit, part.value.id, part.attr)
                elif isinstance(part, ast.Name) and part.id != name:
                    yield from self._definitions(commit, module, part.id)

    def _used(self, name: str, found: set[str]) -> set[str]:
        """Adds a module of claims, and those that it imports, to `found`, which it returns."""
        file = self.modules / f'{name}.py'
        if name in found or not file.is_file():
            return found
        found.add(name)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and 'claims' in node.module.split('.'):
                # `from experiments.claims import toys`, or `from experiments.claims.claim import Verdict`.
                for module in (*(part.name for part in node.names), node.module.rpartition('.')[2]):
                    self._used(module, found)
        return found

    def _code(self, name: str, result: Mapping) -> str:
        """Describes the code that measured a result: the present code, or a commit."""
        revision = result.get('versions', {}).get('git') or ''
        commit = revision.rstrip('+')
        short = (
            self._run('rev-parse', '--short', f'{commit}^{{commit}}', missing='').strip() if commit else ''
        )
        if not short:
            return f'measured by {commit[:7]}, not in this history' if commit else 'measured by unknown code'
        own = [f'{module}.py' for module in sorted(self._used(name, set()))]
        paths = [*own, ':/transformer', ':/configs', *(f':/experiments/{one}' for one in _SHARED)]
        same = not self._run('diff', '--name-only', commit, '--', *paths).strip()
        edited = ' with uncommitted changes' if revision.endswith('+') else ''
        if same and not edited:
            return 'measured by the present code'
        later = self._run('rev-list', '--count', f'{commit}..HEAD').strip()
        return f'measured by {short}{edited}, {later} commit{"s" * (later != "1")} ago'


def _values(tree: ast.Module, name: str) -> Iterator[ast.expr]:
    """Yields what a module assigns to a name. In earlier versions a criterion was a keyword of a call."""
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        names = (part for target in node.targets for part in ast.walk(target))
        if any(isinstance(part, ast.Name) and part.id == name for part in names):
            yield node.value
        calls = (part for part in ast.walk(node.value) if isinstance(part, ast.Call))
        yield from (key.value for call in calls for key in call.keywords if key.arg == name.lower())
