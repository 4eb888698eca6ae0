"""Public data sets as workloads, fetched from the Hub when asked for and kept in its cache. Knows huggingface_hub."""

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dflash2_mlx.bench.workloads import Workload
from dflash2_mlx.errors import LoadError, UsageError
from dflash2_mlx.parsing import parse_json
from dflash2_mlx.store.faults import explain

Row = Mapping[str, object]
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Dataset:
    """Where a data set is, which file is its test part (the first pattern that fits), and the turns of a row."""

    repository: str
    patterns: tuple[str, ...]
    about: str
    max_tokens: int
    turns: Callable[[Row], tuple[str, ...]]


def _first(*keys: str) -> Callable[[Row], tuple[str, ...]]:
    return lambda row: (_word(row, *keys),)


def _code(row: Row) -> tuple[str, ...]:
    return (f"Complete this Python function. Answer with the whole function.\n\n```python\n{_word(row, 'prompt')}```",)


def _mbpp(row: Row) -> tuple[str, ...]:
    tests = row.get("test_list")
    lines = "\n".join(str(test) for test in tests) if isinstance(tests, list) else ""
    return (f"{_word(row, 'prompt', 'text')}\nThe function must pass these tests:\n{lines}",)


def _turns(row: Row) -> tuple[str, ...]:
    for key in ("turns", "prompt"):
        found = row.get(key)
        if isinstance(found, list) and found and all(isinstance(turn, str) for turn in found):
            return tuple(found)
    raise KeyError("turns")


DATASETS = {
    "gsm8k": Dataset(
        "openai/gsm8k", ("main/test*.jsonl", "main/test*.parquet"), "school maths", 512, _first("question")
    ),
    "math500": Dataset("HuggingFaceH4/MATH-500", ("test.jsonl", "*test*.parquet"), "maths", 1024, _first("problem")),
    "humaneval": Dataset(
        "openai/openai_humaneval", ("*test*.jsonl", "openai_humaneval/test*.parquet"), "Python functions", 512, _code
    ),
    "mbpp": Dataset(
        "google-research-datasets/mbpp",
        ("*sanitized*.jsonl", "sanitized/test*.parquet"), "basic Python", 384, _mbpp,
    ),
    "mt-bench": Dataset(
        "HuggingFaceH4/mt_bench_prompts", ("raw/question.jsonl", "*.jsonl", "data/*.parquet"), "two turns", 512, _turns
    ),
}  # fmt: skip


def fetch_workload(name: str, rows: int) -> Workload:
    """The first `rows` rows of the data set. Raises: UsageError for an unknown name; LoadError, in one line."""
    if name not in DATASETS:
        raise UsageError(f"there is no data set {name}. Give one of {', '.join(DATASETS)}.")
    dataset = DATASETS[name]
    path = _fetch(dataset)
    found = tuple(_read_rows(path, rows))
    try:
        conversations = tuple(dataset.turns(row) for row in found)
    except KeyError as error:
        raise LoadError(
            f"{dataset.repository}: a row of {path.name} has no {error.args[0]}; the data set has changed. "
            "Use another --dataset, and please report it."
        ) from error
    if not conversations:
        raise LoadError(f"{dataset.repository}: {path.name} holds no rows. Remove it from the cache and try again.")
    return Workload(name, f"{dataset.about} ({dataset.repository})", dataset.max_tokens, conversations)


def _fetch(dataset: Dataset) -> Path:
    """The data set's file in the cache, downloaded where it is missing."""
    from huggingface_hub import constants, snapshot_download

    try:
        folder = Path(
            snapshot_download(
                dataset.repository,
                repo_type="dataset",
                allow_patterns=list(dataset.patterns),
                etag_timeout=_TIMEOUT_S,
            )
        )
    except Exception as error:  # of huggingface_hub, its HTTP client or the disk
        if constants.HF_HUB_OFFLINE:
            raise LoadError(
                f"HF_HUB_OFFLINE is set and the data set {dataset.repository} is not in the cache. Unset it to go "
                "online once, or leave out --dataset."
            ) from error
        raise explain(error, f"the data set {dataset.repository}") from error
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    name = _fitting(names, dataset)
    if name is None:
        raise LoadError(
            f"{dataset.repository} has no file like {' or '.join(dataset.patterns)}; the data set has changed. "
            "Use another --dataset, and please report it."
        )
    return folder / name


def _fitting(names: Sequence[str], dataset: Dataset) -> str | None:
    """The first name that fits the first pattern that any fits."""
    found = (name for pattern in dataset.patterns for name in sorted(fnmatch.filter(names, pattern)))
    return next(found, None)


def _read_rows(path: Path, most: int) -> Iterable[Row]:
    """The first rows of a .jsonl or .parquet file. Raises: LoadError."""
    if path.suffix == ".parquet":
        return _parquet_rows(path, most)
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        rows = [parse_json(line) for line in lines[:most]]
    except ValueError as error:
        raise LoadError(f"{path} is not JSON line by line ({error}). Remove it and fetch it again.") from error
    return [row for row in rows if isinstance(row, dict)]


def _parquet_rows(path: Path, most: int) -> Iterable[Row]:
    try:
        from pyarrow import ArrowInvalid
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise LoadError(
            f"{path.name} is a parquet file, and pyarrow is not installed. Install it: pip install pyarrow"
        ) from error
    try:
        batch = next(ParquetFile(path).iter_batches(batch_size=most), None)
    except ArrowInvalid as error:
        raise LoadError(f"{path} is no readable parquet file. Remove it and fetch it again.") from error
    return batch.to_pylist() if batch is not None else ()


def _word(row: Row, *keys: str) -> str:
    for key in keys:
        value = row.get(key)
        if isinstance(value, str) and value:
            return value
    raise KeyError(" or ".join(keys))
