"""The house rules that a machine can check: who imports whom, and how long a file and a function may be."""

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "dflash2_mlx"

# Parts of the package from the bottom up. A part imports only from itself and from rows above its own.
LAYERS = (
    ("errors", "parsing"),
    ("config", "events"),
    ("models", "targets"),
    ("engine", "text", "store"),
    ("memory",),
    ("loading",),
    ("session",),
    ("api",),
    ("bench", "server", "chat"),
    ("cli",),
    ("__init__", "__main__"),
)
LOOSE = {"__init__", "__main__", "api", "config", "errors", "events", "parsing"}  # what may stand at the root
# Who may import a heavy package, at any depth of a file: parts, and single files of others. `memory/machine.py` is the
# only probe of the device; `bench/timing.py` has to wait for it, `bench/margins.py` reads the scores that decided.
MAY_IMPORT = {
    "mlx": {
        *("models", "targets", "engine", "loading", "session"),
        *("memory/machine.py", "bench/timing.py", "bench/margins.py"),
    },
    "mlx_lm": {"targets", "text", "loading", "session"},
}
NO_MLX = {"models/config.py"}  # files of those parts that must do without
# Who reads JSON without `parse_json`: itself, the server (which sends its own refusals), and readers of our own text.
OWN_JSON = {
    "parsing.py",
    "server/body.py",
    "server/anthropic/messages.py",
    "text/stream.py",
    "cli/report.py",
    "bench/workloads.py",
}
DATA = {"demo"}  # package data, no code
FORBIDDEN_NAMES = {"utils", "common", "helpers", "manager"}
MOST_FILE_LINES, MOST_FUNCTION_LINES, MOST_PARAMETERS = 400, 60, 5
HEAVY = ("mlx", "mlx_lm", "transformers")

RANK = {part: rank for rank, row in enumerate(LAYERS) for part in row}


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


PACKAGE_FILES, ALL_FILES = python_files(PACKAGE), python_files(PACKAGE, "scripts", "tests")


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def each(paths: list[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """One test of all `paths`, which names every file that fails."""

    def over(check: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            failures = []
            for path in paths:
                try:
                    check(path)
                except AssertionError as failure:
                    failures.append(str(failure).splitlines()[0])
            assert not failures, "\n".join(failures)

        test.__name__ = check.__name__
        return test

    return over


def part_of(path: Path) -> str:
    """The layer part of a package file: its folder or its own name."""
    return path.relative_to(ROOT / PACKAGE).parts[0].removesuffix(".py")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[str]:
    """Dotted names of all modules that a file imports, inside functions too."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{short(path)}:{node.lineno} imports relatively"
            assert node.module is not None
            yield node.module
            if node.module == PACKAGE:
                yield from (f"{PACKAGE}.{alias.name}" for alias in node.names)


def called_on(path: Path, module: str) -> Iterator[str]:
    """Names of the functions of `module` that a file uses."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module:
            yield node.attr


def described(path: Path) -> set[ast.AST]:
    """Methods of the file's Protocols: they describe calls that others wrote."""
    classes = (node for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef))
    protocols = (c for c in classes if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in c.bases))
    return {method for protocol in protocols for method in protocol.body}


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@each(PACKAGE_FILES)
def test_a_file_imports_only_from_the_layers_below_it(path):
    part = part_of(path)
    assert part in RANK or part in DATA, f"{part} has no layer: add it to LAYERS"
    for name in imports(path):
        owner, _, rest = name.partition(".")
        below = rest.split(".")[0] if rest else None
        if owner == PACKAGE and below in RANK:
            assert below == part or RANK[below] < RANK[part], f"{short(path)} imports {name}"


@each(PACKAGE_FILES)
def test_heavy_packages_are_imported_only_where_the_house_allows_it(path):
    for name in imports(path):
        allowed = MAY_IMPORT.get(name.split(".")[0])
        if allowed is not None:
            file = path.relative_to(ROOT / PACKAGE).as_posix()
            assert (part_of(path) in allowed and file not in NO_MLX) or file in allowed, f"{short(path)} imports {name}"


@each(PACKAGE_FILES)
def test_json_from_outside_is_read_in_one_way(path):
    if path.relative_to(ROOT / PACKAGE).as_posix() not in OWN_JSON:
        assert not {"loads", "load"} & set(called_on(path, "json")), f"{short(path)}: use parse_json"


def test_nothing_stands_loose_at_the_root():
    assert {path.stem for path in (ROOT / PACKAGE).glob("*.py")} == LOOSE


def test_no_two_files_import_each_other_in_a_circle():
    names = {
        short(path).removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in PACKAGE_FILES
    }
    below = {name: {other for other in imports(path) if other in names} - {name} for name, path in names.items()}
    while free := [name for name, others in below.items() if not others & below.keys()]:
        for name in free:
            del below[name]
    assert not below, f"a circle runs through {sorted(below)}"


@each(ALL_FILES)
def test_files_and_functions_are_short(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MOST_FILE_LINES, f"{short(path)} has {lines} lines"
    for function in functions(path):
        length = (function.end_lineno or 0) - function.lineno + 1
        assert length <= MOST_FUNCTION_LINES, f"{short(path)}:{function.lineno} {function.name} has {length} lines"


@each([p for p in PACKAGE_FILES if part_of(p) != "cli"])
def test_functions_take_at_most_five_parameters_and_pass_no_loose_options_on(path):
    for function in set(functions(path)) - described(path):
        arguments = function.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        count = len([name for name in names if name not in ("self", "cls")])
        where = f"{short(path)}:{function.lineno} {function.name}"
        assert count <= MOST_PARAMETERS, f"{where} takes {count} parameters"
        assert arguments.kwarg is None, f"{where} takes **{arguments.kwarg.arg if arguments.kwarg else ''}"


@each(ALL_FILES)
def test_no_module_is_named_after_nothing(path):
    words = {word for part in path.relative_to(ROOT).with_suffix("").parts for word in part.lower().split("_")}
    assert not words & FORBIDDEN_NAMES, short(path)


@each([p for p in PACKAGE_FILES if p.read_text(encoding="utf-8").strip()])
def test_every_file_of_the_package_says_what_it_knows(path):
    assert ast.get_docstring(tree(path)), f"{short(path)} has no docstring"


def loaded_after(code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter; the heavy modules that it loaded are the last line of stdout."""
    report = f"import sys; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", f"{code}\n{report}"]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, cwd=ROOT)


def test_importing_the_package_loads_nothing_heavy():
    done = loaded_after(f"import {PACKAGE}")
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stdout + done.stderr


def test_asking_for_help_loads_nothing_heavy():
    if not (ROOT / PACKAGE / "__main__.py").exists():
        pytest.skip("the command line does not exist yet")
    code = (
        "import runpy, sys\n"
        "sys.argv = ['dflash2-mlx', '--help']\n"
        f"try: runpy.run_module('{PACKAGE}', run_name='__main__')\n"
        "except SystemExit as end: assert not end.code, end.code"
    )
    done = loaded_after(code)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
