"""What is shipped: the wheel and its bundled pair, whether it resolves for a Mac, and the scripts around it."""

import os
import subprocess
import sys
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "dflash2_mlx" / "demo"
BUNDLED = (
    "target/config.json",
    "target/tokenizer.json",
    "target/tokenizer_config.json",
    "target/model.safetensors",
    "drafter/config.json",
    "drafter/model.safetensors",
)
NO_NETWORK = ("No matching distribution", "Connection", "connect", "resolve host", "timed out", "lookup address")
needs_demo = pytest.mark.skipif(
    not all((DEMO / name).exists() for name in BUNDLED), reason="the bundled pair is not in this checkout"
)


def run(*command: object, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command's outcome."""
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


def fetch(*command: object, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """As `run`, for what asks a package registry: the test is skipped where none can be reached."""
    done = run(*command, cwd=cwd, **environment)
    if done.returncode and any(words in done.stderr for words in NO_NETWORK):
        pytest.skip(f"no package registry can be reached: {done.stderr.strip().splitlines()[-1]}")
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    done = fetch(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def uv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """uv in a virtual environment of its own."""
    folder = tmp_path_factory.mktemp("uv")
    venv.create(folder, with_pip=True)
    done = fetch(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "uv")
    if done.returncode:
        pytest.skip(f"uv cannot be installed: {done.stderr.strip()[-200:]}")
    return folder / "bin" / "uv"


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "dflash2_mlx").rglob("*.py")}
    page = {path.relative_to(ROOT).as_posix() for path in (ROOT / "dflash2_mlx" / "server" / "page").iterdir()}
    assert modules <= names and page <= names and page
    assert {name.split("/")[0] for name in names} == {"dflash2_mlx", wheel.name.split("-py3")[0] + ".dist-info"}
    assert ("dflash2_mlx/py.typed" in names) == (ROOT / "dflash2_mlx" / "py.typed").exists()


@needs_demo
@pytest.mark.slow
def test_the_wheel_holds_the_bundled_pair_byte_for_byte(wheel):
    archive = zipfile.ZipFile(wheel)
    for name in BUNDLED:
        assert archive.read(f"dflash2_mlx/demo/{name}") == (DEMO / name).read_bytes(), name
    assert not [name for name in archive.namelist() if "training" in name.rsplit("/", 1)[-1]]  # state of a training run


@pytest.mark.slow
def test_the_wheel_says_what_it_is_and_brings_its_command(wheel):
    archive = zipfile.ZipFile(wheel)
    folder = wheel.name.split("-py3")[0] + ".dist-info"
    metadata = message_from_bytes(archive.read(f"{folder}/METADATA"))
    assert metadata["Name"] == "dflash2-mlx" and metadata["Requires-Python"] == ">=3.11"
    assert f"{folder}/licenses/LICENSE" in archive.namelist()
    assert b"dflash2-mlx = dflash2_mlx.__main__:main" in archive.read(f"{folder}/entry_points.txt")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel alone was installed."""
    folder = tmp_path_factory.mktemp("installed")
    done = run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, wheel)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_installed_wheel_tells_its_version(installed):
    done = run(sys.executable, "-m", "dflash2_mlx", "--version", cwd=installed, PYTHONPATH=str(installed))
    assert done.returncode == 0 and done.stdout.startswith("dflash2-mlx ")


@needs_demo
@pytest.mark.slow
def test_the_installed_wheel_answers_with_its_own_pair(installed):
    words = (
        "-m",
        "dflash2_mlx",
        "generate",
        "--model",
        "demo",
        "--require-draft",
        "--reasoning",
        "off",
        "Who are you?",
    )
    done = run(sys.executable, *words, cwd=installed, PYTHONPATH=str(installed), HF_HUB_OFFLINE="1")
    assert done.returncode == 0 and done.stdout.strip(), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_it_resolves_for_a_mac_with_wheels_only(uv, python, tmp_path):
    done = fetch(
        *(uv, "pip", "compile", ROOT / "pyproject.toml", "--python-platform", "aarch64-apple-darwin"),
        *("--python-version", python, "--only-binary", ":all:", "--no-header", "--no-annotate"),
        cwd=tmp_path,
        MACOSX_DEPLOYMENT_TARGET="14.0",
        UV_PYTHON_DOWNLOADS="never",
        UV_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert done.returncode == 0, done.stderr
    packages = {line.split("==")[0] for line in done.stdout.splitlines()}
    assert {"mlx", "mlx-metal", "mlx-lm", "huggingface-hub", "typer", "rich"} <= packages
    assert "mlx-cpu" not in packages


@needs_demo
@pytest.mark.slow
def test_the_mac_check_runs_to_its_report_here(tmp_path):
    words = ("--model", "demo", "--quick", "--output", tmp_path)
    done = run(sys.executable, ROOT / "scripts" / "mac_check.py", *words, PYTHONPATH=str(ROOT), HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stdout + done.stderr
    report = (tmp_path / "mac_check.md").read_text(encoding="utf-8")
    assert "verdict   fits" in report and "## Block sizes" in report and "BUG" not in report
    assert str(Path.home()) not in report and (tmp_path / "mac_check.json").exists()


def workflows() -> list[Path]:
    return sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", workflows(), ids=lambda path: path.name)
def test_a_workflow_is_sound_and_may_only_read(path):
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert content["permissions"] == {"contents": "read"} and content["jobs"]
    for job in content["jobs"].values():
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step), step


def test_tests_run_on_ubuntu_and_on_apple_silicon():
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    assert "ubuntu-latest" in text and "macos-15" in text and "mac_check.py --model demo --quick" in text


def test_the_wrapper_of_the_mac_check_is_sound_shell():
    path = ROOT / "scripts" / "mac_check"
    assert os.access(path, os.X_OK)
    assert run("sh", "-n", path).returncode == 0
