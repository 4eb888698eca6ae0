"""The environment as lines for the report. Knows the environment's dataclasses only."""

from dflash2_mlx.bench.environment import Environment, Model
from dflash2_mlx.bench.numbers import short
from dflash2_mlx.store.hub import gigabytes


def facts(environment: Environment, settings: tuple[tuple[str, str], ...] = ()) -> tuple[tuple[str, str], ...]:
    """What a reader needs to repeat the measurement, name and value."""
    e = environment
    packages = ", ".join(f"{name} {version}" for name, version in e.packages.items() if version)
    lines = [
        ("command", e.command),
        ("when", e.when),
        ("dflash2-mlx", f"{e.version}{f', commit {e.commit}' if e.commit else ''}"),
        ("chip", f"{e.chip}, {gigabytes(e.memory_bytes)} of memory" if e.memory_bytes else e.chip),
        ("computes on", e.device),
        ("system", f"{e.system}, Python {e.python}"),
        ("packages", packages),
        ("target", model_line(e.target)),
        ("drafter", model_line(e.drafter)),
    ]
    if e.older_drafter:
        lines.append(("DFlash 1 drafter", model_line(e.older_drafter)))
    if e.preloaded:
        lines.append(("preloaded", e.preloaded))
    if e.load_average is not None:
        lines.append(("load average at the end", f"{e.load_average:.2f}"))
    if e.ceiling:
        lines.append(
            ("memory ceiling", f"{short(e.ceiling)} tok/s plain: {e.bandwidth:.0f} GB/s over the target's weights")
        )
    return (*lines, *settings)


def about(environment: Environment, *more: str) -> str:
    """What was measured and where, in one line."""
    e = environment
    pair = f"{e.target.name} ({e.target.stored})" if e.target else ""
    if e.target and e.drafter:
        pair += f" with {e.drafter.name} ({e.drafter.stored})"
    return " · ".join(part for part in (pair, e.chip, e.device, *more) if part)


def model_line(model: Model | None) -> str:
    """One checkpoint on a line."""
    if model is None:
        return "none"
    commit = f" at {model.revision[:12]}" if model.revision else ""
    return f"{model.name}{commit}, {model.stored}, {gigabytes(model.bytes)}"
