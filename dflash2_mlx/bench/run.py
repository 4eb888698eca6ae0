"""`bench run`: groups of workloads answered by every method in turn. Knows sessions by protocol, no pair and no MLX."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dflash2_mlx.bench.answers import Clock, Measured, measure
from dflash2_mlx.bench.energy import PowerMeter
from dflash2_mlx.bench.figures import MethodFigures, Passes, decode_rate, figures
from dflash2_mlx.bench.judge import EXACT, EXPECTED, Judge, Judgement
from dflash2_mlx.bench.methods import PLAIN, Method
from dflash2_mlx.bench.numbers import Spread, spread
from dflash2_mlx.bench.timing import Parts
from dflash2_mlx.bench.workloads import Workload, with_document
from dflash2_mlx.config import EngineParams, SamplingParams, TextParams
from dflash2_mlx.session.session import Request

NEVER_ENDS = frozenset({-1})  # no token has this id


@dataclass(frozen=True, slots=True)
class Group:
    """One workload under one setting. thinking: `on`, `off` or `default`. context: prompt tokens, None = as it is."""

    workload: Workload
    thinking: str
    context: int | None
    max_tokens: int

    @property
    def name(self) -> str:
        """The workload with what differs from its own setting."""
        parts = [self.workload.name]
        if self.thinking != "off":
            parts.append(f"thinking {self.thinking}")
        if self.context is not None:
            parts.append(f"{self.context} prompt tokens")
        if self.max_tokens != self.workload.max_tokens:
            parts.append(f"{self.max_tokens} tokens")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the text of a method is not plain decoding's, of `length` tokens, and what the judge says of it."""

    method: str
    conversation: int
    turn: int
    at: int | None
    length: int
    kind: str
    margin: float | None
    why: str


@dataclass(frozen=True, slots=True)
class GroupResult:
    """One group's figures by method. speedup: decode rate over plain's in the same repeat, turn about."""

    name: str
    workload: str
    about: str
    thinking: str
    context: int | None
    max_tokens: int
    conversations: int
    prompt_tokens: int
    methods: Mapping[str, MethodFigures]
    speedup: Mapping[str, Spread | None]
    whole_speedup: Mapping[str, Spread | None]
    same_text: bool
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """How to measure. exact_length: answers go on past their end until the token limit.

    judge: None where a text of its own is right, as rejection sampling draws one.
    """

    repeats: int
    sampling: SamplingParams
    exact_length: bool = False
    parts: bool = True
    count_tokens: Callable[[str], int] = field(default=len)
    clock: Clock = time.perf_counter
    meter: PowerMeter | None = None
    judge: Judge | None = field(default_factory=lambda: Judge(EXACT, lambda request, at, other: None))


def groups_of(
    workloads: Sequence[Workload], thinking: Sequence[str], contexts: Sequence[int], lengths: Sequence[int]
) -> list[Group]:
    """Every workload under every setting; no contexts or lengths = the workload's own."""
    return [
        Group(workload, word, context, length or workload.max_tokens)
        for workload in workloads
        for word in thinking
        for context in (contexts or (None,))
        for length in (lengths or (0,))
    ]


def drafted(groups: Sequence[GroupResult]) -> list[str]:
    """The methods that were compared with plain decoding."""
    return list(dict.fromkeys(name for group in groups for name in group.speedup))


def run_group(group: Group, methods: Sequence[Method], plan: RunPlan) -> GroupResult:
    """Warm every method up, then answer all conversations `repeats` times, methods turn and turn about."""
    run = _GroupRun(group, plan, methods[0])
    passes = run.passes(methods)
    return summed_up(group, passes, run.differences(passes))


def take_passes(group: Group, methods: Sequence[Method], plan: RunPlan) -> dict[str, Passes]:
    """Everything measured of one group, by method; the first method is plain decoding."""
    return _GroupRun(group, plan, methods[0]).passes(methods)


def speedup(one: Passes, plain: Passes) -> Spread | None:
    """The rate over plain's, repeat by repeat, so that what slows both down does not count."""
    return _ratio(one, plain, decode_rate)


def summed_up(group: Group, passes: Mapping[str, Passes], differences: tuple[Difference, ...]) -> GroupResult:
    """The group's result from all answers."""
    plain = passes[PLAIN]
    others = [name for name in passes if name != PLAIN]
    same = not differences
    return GroupResult(
        name=group.name,
        workload=group.workload.name,
        about=group.workload.about,
        thinking=group.thinking,
        context=group.context,
        max_tokens=group.max_tokens,
        conversations=len(plain.answers[0]),
        prompt_tokens=sum(answer.summary.prompt_tokens for answer in plain.repeats()[0]),
        methods={name: figures(found) for name, found in passes.items()},
        speedup={name: speedup(passes[name], plain) for name in others},
        whole_speedup={name: _ratio(passes[name], plain, _inverse_total) if same else None for name in others},
        same_text=same,
        differences=differences,
    )


class _GroupRun:
    """The answers of one group. Later turns' history is plain decoding's, so every method is asked the same."""

    def __init__(self, group: Group, plan: RunPlan, plain: Method) -> None:
        self._group, self._plan = group, plan
        self._openings = [self._opening(turns) for turns in group.workload.conversations]
        self._histories = [self._answers(plain, turns, ()) for turns in self._openings]

    def passes(self, methods: Sequence[Method]) -> dict[str, Passes]:
        """Everything measured, by method; the first pass of each is a warm-up and not counted."""
        for method in methods[1:]:
            self._all(method)
        answers: dict[str, list[tuple[tuple[Measured, ...], ...]]] = {method.name: [] for method in methods}
        parts: dict[str, list[Parts]] = {method.name: [] for method in methods}
        for repeat in range(self._plan.repeats):
            turn_about = [*methods[repeat % len(methods) :], *methods[: repeat % len(methods)]]
            done: dict[str, list[tuple[Measured, ...]]] = {method.name: [] for method in methods}
            for turns, history in zip(self._openings, self._histories, strict=True):
                for method in turn_about:
                    done[method.name].append(self._answers(method, turns, history))
            for name, conversations in done.items():
                answers[name].append(tuple(conversations))
            for turns in self._timed(repeat):
                for method in turn_about:
                    parts[method.name].append(method.parts(self._request(turns, (), 0)))
        return {
            method.name: Passes(tuple(answers[method.name]), tuple(parts[method.name]), self._energy(method))
            for method in methods
        }

    def differences(self, passes: Mapping[str, Passes]) -> tuple[Difference, ...]:
        """Where any repeat's text is not the first plain one, each kind of difference once."""
        found: dict[tuple[object, ...], Difference] = {}
        for name, taken in passes.items():
            for repeat in taken.answers:
                for number, (turns, expected) in enumerate(zip(repeat, passes[PLAIN].answers[0], strict=True)):
                    for turn, (one, other) in enumerate(zip(turns, expected, strict=True)):
                        place = (name, number, turn, one.tokens, one.reason)
                        if (one.tokens, one.reason) == (other.tokens, other.reason) or place in found:
                            continue
                        request = self._request(self._openings[number], self._histories[number], turn)
                        judge = self._plan.judge
                        j = judge.of(request, other, one) if judge else Judgement(EXPECTED)
                        found[place] = Difference(name, number, turn, j.at, len(other.tokens), j.kind, j.margin, j.why)
        return tuple(found.values())

    def _opening(self, turns: Sequence[str]) -> tuple[str, ...]:
        """The user messages, the first one after a document where the group asks for one."""
        tokens = self._group.context or self._group.workload.document_tokens
        return (with_document(turns[0], tokens, self._plan.count_tokens), *turns[1:]) if tokens else tuple(turns)

    def _all(self, method: Method) -> tuple[tuple[Measured, ...], ...]:
        pairs = zip(self._openings, self._histories, strict=True)
        return tuple(self._answers(method, turns, history) for turns, history in pairs)

    def _answers(self, method: Method, turns: Sequence[str], history: Sequence[Measured]) -> tuple[Measured, ...]:
        """The answers of one conversation, in a session of its own."""
        session, answers = (method.converse if len(turns) > 1 else method.open)(), list[Measured]()
        for number in range(len(turns)):
            answers.append(measure(session, self._request(turns, history or answers, number), self._plan.clock))
        return tuple(answers)

    def _request(self, turns: Sequence[str], history: Sequence[Measured], number: int) -> Request:
        messages: list[Mapping[str, object]] = []
        for turn in range(number):
            messages.append({"role": "user", "content": turns[turn]})
            messages.append({"role": "assistant", "content": history[turn].text})
        messages.append({"role": "user", "content": turns[number]})
        return Request(
            messages,
            self._plan.sampling,
            EngineParams(
                max_tokens=self._group.max_tokens, end_tokens=NEVER_ENDS if self._plan.exact_length else frozenset()
            ),
            TextParams(reasoning="off" if self._group.thinking == "off" else None, tools=self._group.workload.tools),
        )

    def _timed(self, repeat: int) -> Sequence[tuple[str, ...]]:
        """Conversations whose first turn is timed part by part in this repeat: over all repeats each at least once."""
        if not self._plan.parts:
            return ()
        count = len(self._openings)
        return [self._openings[n % count] for n in range(repeat, max(count, repeat + 1), self._plan.repeats)]

    def _energy(self, method: Method) -> float | None:
        """Joules a token over all conversations, where the machine can be asked."""
        if self._plan.meter is None:
            return None
        with self._plan.meter as meter:
            answers = self._all(method)
        tokens = sum(len(answer.tokens) for conversation in answers for answer in conversation)
        return meter.joules / tokens if tokens and meter.joules else None


def _ratio(one: Passes, plain: Passes, number: Callable[[Sequence[Measured]], float | None]) -> Spread | None:
    pairs = zip(map(number, one.repeats()), map(number, plain.repeats()), strict=True)
    return spread([fast / slow for fast, slow in pairs if fast is not None and slow])


def _inverse_total(answers: Sequence[Measured]) -> float | None:
    total = sum(answer.total_s for answer in answers)
    return 1 / total if total > 0 else None
