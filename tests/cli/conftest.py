"""A tiny pair that a test may break."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def pair(stored: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Copies of the stored target and drafter, free to be broken."""
    return tuple(Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in stored)
