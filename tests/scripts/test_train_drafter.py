"""The drafter's training: its pass equals the drafter at work, its data is cut right, and it learns."""

import json
import random
import sys
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_map

from dflash2_mlx.models.config import DrafterConfig
from dflash2_mlx.models.drafter import DFlashDrafter
from dflash2_mlx.targets.families import build_target
from fakes import TARGET_CONFIGS, VOCAB, tiny_target

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import train_drafter
from drafter_training.data import Corpus, Piece
from drafter_training.evaluation import load_drafter, tokens_per_round
from drafter_training.lessons import Task, make_task
from drafter_training.losses import Objective, pair_scores
from drafter_training.network import Shape, drafter_json, fresh_network, parsed, save_drafter
from drafter_training.teacher import Teacher, default_taps, mask_token
from drafter_training.trainer import Lessons, Schedule, Trainer, learn

SCHEDULE = Schedule(steps=10, minutes=None, warm_up=5, rate=0.02, batch=4, anchors=6, passes=1, seed=0)


class WordTokenizer:
    """Texts are token ids between blanks; `user 5` is a message, `<a>` opens an answer, 1 ends it."""

    def __init__(self, size: int = VOCAB, *, mask: bool = False) -> None:
        names = {str(number): number for number in range(size - 20)}
        self._vocabulary = {**names, "<|mask|>": size - 30} if mask else names

    def get_vocab(self) -> dict[str, int]:
        return self._vocabulary

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [int(word) for word in text.split()]

    def apply_chat_template(self, messages, *, tokenize: bool, add_generation_prompt: bool, tools, **settings) -> str:
        assert not tokenize
        opened = "3 3 " if settings.get("enable_thinking") is False else "3 "
        parts = ["4 " * len(tools or [])]
        for message in messages:
            thought = opened if message["role"] == "assistant" else ""
            parts.append(f"2 {thought}{message['content']} 1\n")
        return "".join(parts) + (f"2 {opened}" if add_generation_prompt else "")


def make_teacher(model_type: str = "qwen3", *, seed: int = 0) -> Teacher:
    return Teacher(tiny_target(model_type, seed), WordTokenizer(), frozenset({1}), (1, 3, 6))


def make_drafter(teacher: Teacher, method: str = "dflash2") -> tuple[DrafterConfig, nn.Module]:
    """A small random network, so that convolutions and selector are in play."""
    shape = Shape(method, 2, 96, 4, 2, 16, 16, 8, 8, 4, 16)
    config = parsed(drafter_json(teacher, shape, 500), Path("drafter"))
    network = fresh_network(config, teacher, 0)
    network.update(tree_map(lambda p: mx.random.normal(p.shape) * 0.2, network.parameters()))
    return config, network


def make_pieces(count: int = 3, seed: int = 0) -> list[Piece]:
    chance = random.Random(seed)
    return [Piece(tuple(chance.randrange(VOCAB) for _ in range(30 + 7 * n)), 5 + n) for n in range(count)]


def task_of(teacher: Teacher, pieces: list[Piece], width: int = 8) -> Task:
    return make_task(pieces, learn(teacher, pieces), anchors=9, width=width, chance=random.Random(1))


@pytest.mark.slow
@pytest.mark.parametrize("width", [2, 5, 8])
@pytest.mark.parametrize("method", ["dflash2", "dflash1"])
def test_the_training_pass_equals_the_drafter_at_work(method: str, width: int) -> None:
    teacher = make_teacher()
    config, network = make_drafter(teacher, method)
    pieces = make_pieces()
    task = task_of(teacher, pieces, width)
    hidden, logits = Objective(config, teacher).rows(network, task)
    drafter = DFlashDrafter(config, network, teacher.embed, teacher.head)
    places = task.places.tolist()
    for row, piece in enumerate(pieces):
        features = learn(teacher, [piece])[0].features
        for column, anchor in enumerate(task.anchors[row].tolist()):
            first = (row * task.anchors.shape[1] + column) * width
            mine = [n for n, place in enumerate(places) if first <= place < first + width]
            if not mine:  # a column that this piece has no anchor for
                continue
            drafter.reset()
            drafter.observe(features[:anchor], anchor)
            wanted = drafter.hidden(mx.array([piece.ids[anchor]]), width - 1)
            rows = mx.array([places[n] - first - 1 for n in mine])
            assert mx.abs(hidden[mx.array(mine)] - wanted[rows]).max().item() < 1e-4
            assert mx.abs(logits[mx.array(mine)] - drafter.logits(wanted)[rows]).max().item() < 1e-4


def test_pair_scores_equal_the_selectors_transitions() -> None:
    teacher = make_teacher()
    _, network = make_drafter(teacher)
    mx.random.seed(3)
    hidden, logits = mx.random.normal((2, 64)), mx.random.normal((2, VOCAB))
    candidates, previous = mx.array([[5, 9, 30], [7, 8, 400]]), mx.array([77, 9])
    mine = pair_scores(network, hidden, logits, previous, candidates)
    theirs = network.candidate_selector.transitions(previous[:1], candidates, hidden)
    assert mx.abs(mine[0] - logits[0][candidates[0]] - theirs[0, 0]).max().item() < 1e-5
    assert mx.abs(mine[1] - logits[1][candidates[1]] - theirs[1, 1]).max().item() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("model_type", list(TARGET_CONFIGS))
def test_lessons_of_padded_rows_equal_what_the_target_computes_alone(model_type: str) -> None:
    teacher, pieces = make_teacher(model_type), make_pieces()
    for piece, lesson in zip(pieces, learn(teacher, pieces), strict=True):
        teacher.target.reset()
        forward = teacher.target.verify(mx.array(piece.ids))
        teacher.target.commit(0)
        assert mx.abs(forward.features - lesson.features).max().item() < 1e-3
        odds = mx.softmax(forward.logits, axis=-1)
        assert mx.abs(mx.take_along_axis(odds, lesson.choices, axis=-1) - lesson.odds).max().item() < 1e-3
        assert mx.abs(odds.max(axis=-1) - lesson.odds[:, 0]).max().item() < 1e-3


def test_rows_are_told_the_choices_made_right_before_them() -> None:
    teacher, pieces = make_teacher(), make_pieces()
    task, lessons = task_of(teacher, pieces), learn(teacher, pieces)
    for n, place in enumerate(task.places.tolist()):
        row, slot = place // task.width // task.anchors.shape[1], place % task.width
        before = task.anchors.reshape(-1)[place // task.width].item() + slot - 1
        assert task.slots[n].item() == slot >= 1
        assert task.previous[n].item() == pieces[row].ids[before]
        assert task.choices[n].tolist() == lessons[row].choices[before].tolist()
    assert task.weights.sum().item() == pytest.approx(1.0, abs=1e-5)


def write_lines(path: Path, *records: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def corpus_of(path: Path, longest: int = 256) -> Corpus:
    return Corpus(path, WordTokenizer(), longest=longest, seed=0)


def test_every_assistant_turn_is_a_piece_that_starts_after_its_prompt(tmp_path: Path) -> None:
    messages = [{"role": role, "content": text} for role, text in zip("uaua", ("10", "20 21", "11", "22"), strict=True)]
    for message in messages:
        message["role"] = {"u": "user", "a": "assistant"}[message["role"]]
    record = {"messages": messages, "enable_thinking": False, "tools": [{"type": "function"}]}
    pieces = corpus_of(write_lines(tmp_path / "data.jsonl", record)).held_back()
    assert [piece.ids[: piece.start] for piece in pieces] == [
        (4, 2, 10, 1, 2, 3, 3),
        (4, 2, 10, 1, 2, 3, 3, 20, 21, 1, 2, 11, 1, 2, 3, 3),
    ]
    assert [piece.ids[piece.start :] for piece in pieces] == [(20, 21, 1), (22, 1)]


def test_long_text_is_cut_so_that_each_token_is_drafted_once(tmp_path: Path) -> None:
    words = list(range(100, 400))
    pieces = corpus_of(write_lines(tmp_path / "a.jsonl", {"text": " ".join(map(str, words))}), longest=64).held_back()
    assert [token for piece in pieces for token in piece.ids[piece.start :]] == words[1:]
    assert all(len(piece.ids) <= 64 for piece in pieces)


def test_plain_text_is_data_too(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("5 6 7\n8 9\n")
    assert corpus_of(tmp_path / "data.txt").held_back() == [Piece((5, 6, 7, 8, 9), 1)]


def test_taps_are_spread_from_the_second_layer_to_the_third_from_last() -> None:
    assert default_taps(10) == (1, 4, 7)
    assert default_taps(64) == (1, 16, 31, 46, 61)
    assert default_taps(3) == (1,)


def test_the_mask_token_is_named_or_unused_or_given() -> None:
    teacher = make_teacher()
    assert mask_token(teacher, None) == VOCAB - 20
    assert mask_token(teacher, "17") == 17
    teacher.tokenizer = WordTokenizer(mask=True)
    assert mask_token(teacher, None) == mask_token(teacher, "<|mask|>") == VOCAB - 30


@pytest.mark.parametrize("method", ["dflash2", "dflash1"])
def test_what_is_saved_loads_strictly(tmp_path: Path, method: str) -> None:
    teacher = make_teacher()
    shape = Shape(method, 2, None, None, None, None, 32, 8, 8, 4, 16)
    raw = drafter_json(teacher, shape, 500)
    save_drafter(fresh_network(parsed(raw, tmp_path), teacher, 0), raw, tmp_path)
    assert load_drafter(tmp_path, teacher).config.kind == ("DFlash 2" if method == "dflash2" else "DFlash 1")


@pytest.mark.slow
def test_a_restored_training_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    teacher = make_teacher()
    config, network = make_drafter(teacher)
    objective, task = Objective(config, teacher), task_of(teacher, make_pieces())
    first = Trainer(network, objective, SCHEDULE)
    first.learn(task)
    first.save(tmp_path / "state.safetensors")
    second = Trainer(make_drafter(teacher)[1], objective, SCHEDULE)
    second.restore(tmp_path / "state.safetensors")
    wanted = [first.learn(task) for _ in range(3)]
    assert [second.learn(task) for _ in range(3)] == pytest.approx(wanted, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dflash2", "dflash1"])
def test_a_few_steps_lower_the_loss(method: str) -> None:
    teacher = make_teacher()
    config, network = make_drafter(teacher, method)
    task = task_of(teacher, make_pieces())
    trainer = Trainer(network, Objective(config, teacher), SCHEDULE)
    losses = [trainer.learn(task) for _ in range(10)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["nowhere", "data.jsonl", "out"], 1, "holds no config.json"),
        (["gpt", "data.jsonl", "out"], 1, "model_type is 'gpt2'"),
        (["gpt", "data.jsonl", "full"], 2, "already holds a model"),
        (["gpt", "data.jsonl", "out", "--resume"], 1, "to go on from"),
    ],
)
def test_an_error_is_one_line(arguments: list[str], status: int, words: str, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("gpt", "full"):
        Path(name).mkdir()
    Path("gpt/config.json").write_text('{"model_type": "gpt2"}')
    Path("full/model.safetensors").touch()
    monkeypatch.setattr(sys, "argv", ["train_drafter.py", *arguments])
    assert train_drafter.main() == status
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and words in said[0]


def counting_teacher(size: int) -> Teacher:
    """A target that counts: after token n it says n + 1."""
    config = {**TARGET_CONFIGS["llama"], "vocab_size": size}
    from mlx_lm.models.llama import Model, ModelArgs

    mx.random.seed(0)
    model = Model(ModelArgs.from_dict(config))
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight = mx.zeros_like(layer.self_attn.o_proj.weight)
        layer.mlp.down_proj.weight = mx.zeros_like(layer.mlp.down_proj.weight)
    rows = mx.random.normal((size, 64))
    model.model.embed_tokens.weight = rows
    model.lm_head.weight = rows[(mx.arange(size) - 1) % size]
    model.eval()
    return Teacher(build_target(model, "llama"), WordTokenizer(size), frozenset({1}), (1, 4, 6))


@pytest.mark.slow
def test_training_on_counting_learns_to_count(tmp_path: Path) -> None:
    chance = random.Random(0)
    starts = [chance.randrange(5, 60) for _ in range(80)]
    texts = [{"text": " ".join(str(word) for word in range(start, start + 40))} for start in starts]
    teacher = counting_teacher(128)
    corpus = Corpus(write_lines(tmp_path / "data.jsonl", *texts), teacher.tokenizer, longest=64, seed=0)
    schedule = Schedule(steps=200, minutes=None, warm_up=20, rate=0.02, batch=8, anchors=8, passes=1, seed=0)
    raw = drafter_json(teacher, Shape("dflash2", 1, 96, 4, 2, 16, 16, 8, 8, 4, 16), 127)
    config = parsed(raw, tmp_path)
    trainer = Trainer(fresh_network(config, teacher, 0), Objective(config, teacher), schedule)
    for task, _ in Lessons(corpus, teacher, schedule, config.block_size).tasks(0):
        trainer.learn(task)
        if trainer.step == schedule.steps:
            break
    save_drafter(trainer.network, raw, tmp_path / "out")
    drafter = load_drafter(tmp_path / "out", teacher)
    assert tokens_per_round(teacher, drafter, corpus.held_back()[:4], 8) > 2.5
