"""The one place where names become models: resolved, looked up and opened once, then handed to whoever needs them.

Knows files, configs and headers of weights; no network, no MLX. What is wrong with a model is kept, not raised, so
that `doctor` can tell it and loading can refuse it.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from dflash2_mlx.config import LoadParams
from dflash2_mlx.errors import ConfigError, LoadError, UsageError
from dflash2_mlx.models.config import DrafterConfig, is_drafter, parse_drafter_config
from dflash2_mlx.store.checkpoint import WeightFile, list_folder, read_json, read_weights, shard_names
from dflash2_mlx.store.hub import (
    PACKAGE,
    Repository,
    cached_commits,
    read_name,
    repository_folder,
    snapshot_folder,
)
from dflash2_mlx.store.manifest import Manifest, listed, problem_of, read_manifest
from dflash2_mlx.store.pairs import KNOWN_PAIRS, KnownPair, known_pair, target_and_drafter
from dflash2_mlx.store.published import published_drafter, published_target

State = Literal["bundled", "folder", "in the cache", "incomplete", "damaged", "not there"]
_THERE = ("bundled", "folder", "in the cache")
_TOKENIZERS = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"))


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """A model by its resolved name, and what its files say.

    folder: where the files are, or would be. files: bytes of each file by name. config: of config.json, else the
    published one, else empty. drafter: the config of a drafter, checked. fault: why it cannot be loaded.
    """

    name: str
    place: Path | Repository
    state: State
    folder: Path
    fetch: str
    files: Mapping[str, int]
    config: Mapping[str, object]
    weights: tuple[WeightFile, ...] = ()
    drafter: DrafterConfig | None = None
    manifest: Manifest | None = None
    fault: LoadError | None = None

    @property
    def is_there(self) -> bool:
        """Whether all its files are on this machine, sound or not."""
        return self.state in _THERE

    @property
    def typed(self) -> str:
        """The name as a shell takes it."""
        return shlex.quote(self.name)

    @property
    def commit(self) -> str | None:
        """The commit that the name means in the cache now; None for a folder, and where nothing is cached."""
        return self.folder.name if isinstance(self.place, Repository) and self.state != "not there" else None

    @property
    def nbytes(self) -> int | None:
        """Bytes of its files, None where they are not all there."""
        return sum(self.files.values()) if self.is_there else None


@dataclass(frozen=True, slots=True)
class OpenedPair:
    """What `params` name, opened. drafting_off: why there is no drafter. known: its line in the table of pairs."""

    params: LoadParams
    known: KnownPair | None
    target: OpenedModel
    drafter: OpenedModel | None
    drafting_off: str | None

    @property
    def models(self) -> tuple[OpenedModel, ...]:
        """Target and drafter."""
        return (self.target, self.drafter) if self.drafter else (self.target,)

    @property
    def missing(self) -> tuple[OpenedModel, ...]:
        """Those that are not, or not whole, on this machine."""
        return tuple(model for model in self.models if not model.is_there)

    @property
    def fetch(self) -> str:
        """What to type to fetch what is missing."""
        commands = list(dict.fromkeys(model.fetch for model in self.missing))
        both = [f"dflash2-mlx pull {self.known.alias}{end}" for end in ("", " --draft-only")] if self.known else []
        return " && ".join(both[:1] if commands == both else commands)


def open_pair(params: LoadParams) -> OpenedPair:
    """The pair that `params` name, opened once for everything that follows.

    Raises: LoadError for a name that can be no model, or a required drafter that is unknown; UsageError.
    """
    known = known_pair(params.model)
    target, draft, off = target_and_drafter(params)
    drafter = open_drafter(draft, params.draft_revision, known) if draft else None
    return OpenedPair(params, known, open_target(target, known), drafter, off)


def open_target(name: str, known: KnownPair | None = None) -> OpenedModel:
    """The target `name`. Raises: LoadError for a name that can be no model."""
    model = open_model(name, None, known)
    if not model.is_there:
        return replace(model, config=published_target(model.name) or {})
    if is_drafter(model.config):
        return _faulty(
            model,
            ConfigError(
                f"{model.folder} is a drafter: it borrows embedding, head and tokenizer of a target. "
                "Pass it as --draft, and its target as --model."
            ),
        )
    if not model.fault and not any(all(name in model.files for name in names) for names in _TOKENIZERS):
        text = f"{model.folder}: there is no tokenizer.json here, nor another tokenizer. Fetch it again."
        return _faulty(model, ConfigError(text))
    return model


def open_drafter(name: str, revision: str | None = None, known: KnownPair | None = None) -> OpenedModel:
    """The drafter `name`. Raises: LoadError for a name that can be no model; UsageError for a folder's revision."""
    model = open_model(name, revision, known)
    if not model.is_there:
        return replace(model, drafter=published_drafter(model.name))
    if model.fault:
        return model
    try:
        return replace(model, drafter=parse_drafter_config(model.config, str(model.folder / "config.json")))
    except LoadError as error:
        return _faulty(model, error)


def open_model(name: str, revision: str | None = None, known: KnownPair | None = None) -> OpenedModel:
    """The model `name`, be it target or drafter. Raises: as `open_drafter`."""
    place = read_name(name, revision)
    if isinstance(place, Path):
        if revision:
            raise UsageError(f"{name} is a folder, which has no revisions: drop --draft-revision {revision}.")
        state: State = "bundled" if name.startswith(PACKAGE) else "folder"
        return _opened(OpenedModel(name, place, state, place, "", {}, {}))
    fetch = f"dflash2-mlx pull {_short_name(str(place), known)}"
    folder = snapshot_folder(place)
    model = OpenedModel(str(place), place, "in the cache", folder or repository_folder(place), fetch, {}, {})
    return _opened(model) if folder else replace(model, state="not there", fault=_not_there(place, fetch))


def _opened(model: OpenedModel) -> OpenedModel:
    """The model with what its folder holds, or with the fault that was found there."""
    folder, in_cache = model.folder, isinstance(model.place, Repository)
    try:
        files, manifest = list_folder(folder), read_manifest(folder)
        model = replace(model, files=files, manifest=manifest)
        problem = problem_of(manifest, files) if manifest and (in_cache or manifest.damaged) else None
        if problem:
            return _unfit(model, problem)
        if "config.json" in files or not in_cache:
            model = replace(model, config=read_json(folder / "config.json"))
        names = shard_names(folder, files)
        missing = [name for name in ("config.json", *names) if name not in files]
        if in_cache and missing:
            return _unfit(model, f"incomplete: {listed(missing)} missing or cut")
        weights = read_weights(folder, names, files)
        _refuse_impossible(folder, model.config, weights)
    except LoadError as error:
        return _faulty(model, error)
    return replace(model, weights=weights)


def _faulty(model: OpenedModel, error: LoadError) -> OpenedModel:
    """The model with its fault, the command that fetches it added to the advice to do so."""
    text = str(error)
    if model.fetch and text.endswith("etch it again."):
        error = type(error)(f"{text[:-1]}: {model.fetch}")
    return replace(model, fault=error)


def _unfit(model: OpenedModel, problem: str) -> OpenedModel:
    """The model whose files are not those that they should be; `problem` follows "is"."""
    if isinstance(model.place, Path):
        steps = f"Put the right files back, then: dflash2-mlx verify {model.typed}"
        return replace(model, fault=LoadError(f"{model.folder} is {problem}. {steps}"))
    state: State = "damaged" if problem.startswith("damaged") else "incomplete"
    text = f"{model.name} in the Hugging Face cache is {problem}. Fetch it with: {model.fetch}"
    return replace(model, state=state, fault=LoadError(text))


def _not_there(place: Repository, fetch: str) -> LoadError:
    commits = cached_commits(place)
    if commits and place.revision is None:
        return LoadError(
            f"the Hugging Face cache does not say which commit {place} means (it has no refs/main); it holds "
            f"{listed(commits)}. Name one, as {place}@{commits[0]}, or fetch the newest: {fetch}"
        )
    return LoadError(
        f"{place} is neither a folder nor in the Hugging Face cache, and nothing is downloaded unasked. "
        f"Fetch it with: {fetch}"
    )


def _short_name(name: str, known: KnownPair | None) -> str:
    """What `pull` is to be told: an alias where the table has one for exactly this model."""
    for pair in (*([known] if known else []), *KNOWN_PAIRS):
        if name == pair.target:
            return pair.alias
        if name == pair.drafter:
            return f"{pair.alias} --draft-only"
    return name


def _refuse_impossible(folder: Path, config: Mapping[str, object], weights: tuple[WeightFile, ...]) -> None:
    """Numbers that size what is built. A layer has a tensor at least; a context is counted in 32 bits."""
    tensors = sum(len(file.tensors) for file in weights)
    limits = {"num_hidden_layers": tensors, "max_position_embeddings": 2**31 - 1}
    for settings in (config, config.get("text_config")):
        for key, high in limits.items():
            value = settings.get(key) if isinstance(settings, Mapping) else None
            if value is not None and (type(value) is not int or not 1 <= value <= high):
                why = f": the weights have {tensors} tensors" if high == tensors else ""
                raise ConfigError(
                    f"{folder}/config.json: {key} is {value!r}, not a whole number from 1 to {high}{why}. "
                    "Fetch it again."
                )
