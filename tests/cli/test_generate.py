"""`dflash2-mlx generate` as a user runs it, over a tiny random pair."""

import json
import os

import pytest

NO_END = ("--logit-bias", "256=-1000", "--logit-bias", "258=-1000")  # the random target ends where it likes


def ask(pair, *args):
    target, drafter = pair
    return ("generate", "--model", target, "--draft", drafter, "--max-tokens", 24, *NO_END, *args)


def test_stdout_is_the_answer_alone(cli, stored):
    outcome = cli(*ask(stored, "hello"))
    assert outcome.code == 0 and outcome.out.endswith("\n") and "\x1b" not in outcome.out + outcome.err


def test_drafting_changes_no_token_of_a_greedy_answer(cli, stored):
    drafted = json.loads(cli(*ask(stored, "hello", "--json")).out)
    plain = json.loads(cli("generate", "-m", stored[0], "--no-draft", "hello", "-n", 24, *NO_END, "--json").out)
    assert drafted["tokens"] == plain["tokens"] and drafted["rounds"] and not plain["rounds"]


@pytest.mark.slow
def test_a_seed_gives_the_same_text_at_every_block_size(cli, stored):
    sampled = ("--temperature", 1, "--top-p", 0.9, "--seed", -7, "--json")
    texts = {json.loads(cli(*ask(stored, "hello", "--block-size", b, *sampled)).out)["text"] for b in (1, 2, 5, 8)}
    assert len(texts) == 1


def test_without_a_seed_two_answers_differ_and_name_their_seeds(cli, stored):
    first, second = (json.loads(cli(*ask(stored, "hello", "--temperature", 1, "--json")).out) for _ in range(2))
    assert first["tokens"] != second["tokens"] and first["seed"] != second["seed"]


def test_the_json_document_has_every_promised_field_and_adds_up(cli, stored):
    answer = json.loads(cli(*ask(stored, "hello", "--json")).out)
    promised = "text reasoning tool_calls tokens finish_reason prompt_tokens completion_tokens rounds stats model draft"
    assert set(promised.split()) <= answer.keys() and answer["block_size"] == 8
    assert answer["finish_reason"] == "length" and len(answer["tokens"]) == answer["completion_tokens"] == 24
    assert answer["stats"]["tokens_per_round"] == pytest.approx(1 + sum(answer["rounds"]) / len(answer["rounds"]))


def test_the_rejection_rule_answers_too(cli, stored):
    answer = json.loads(cli(*ask(stored, "hi", "--acceptance", "rejection", "--temperature", 1, "--json")).out)
    assert answer["completion_tokens"] == 24 and answer["stats"]["acceptance_rule"] == "rejection"


def test_logprobs_come_with_every_token(cli, stored):
    answer = json.loads(cli(*ask(stored, "hi", "--logprobs", 3, "--json")).out)
    assert [entry["token"] for entry in answer["logprobs"]] == answer["tokens"]
    assert all(len(entry["top"]) == 3 for entry in answer["logprobs"])


def test_a_logit_bias_is_honoured(cli, stored):
    answer = json.loads(cli(*ask(stored, "hi", "--logit-bias", "65=1000", "--json")).out)
    assert set(answer["tokens"]) == {65}


@pytest.mark.parametrize("count", [0, 7, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 8, 9))])
def test_max_tokens_is_exact(cli, stored, count):
    answer = json.loads(cli(*ask(stored, "hi", "--max-tokens", count, "--json")).out)
    assert answer["completion_tokens"] == count and answer["finish_reason"] == "length"


def test_the_prompt_comes_first_and_stdin_after_it(cli, stored):
    both = json.loads(cli(*ask(stored, "a", "--raw", "--json"), stdin=b"b\r\nc\r\n").out)
    assert both["prompt_tokens"] == len("a\n\nb\nc")


def test_a_cut_answer_says_so_on_stderr(cli, stored):
    assert "token limit" in cli(*ask(stored, "hello")).err


def test_the_statistics_name_the_block_size_and_why(cli, stored):
    assert "block size   8: the drafter's own block size" in cli(*ask(stored, "hello", "--stats")).err


@pytest.mark.parametrize("option", [("--no-draft",), ("--block-size", 1)])
def test_plain_decoding_is_said_with_its_reason(cli, stored, option):
    draft = () if option == ("--no-draft",) else ("--draft", stored[1])
    outcome = cli("generate", "hello", "-m", stored[0], *draft, *option, "--max-tokens", 4, "--stats")
    assert "drafting is off" in outcome.err and "drafting     off" in outcome.err


def test_a_target_without_a_known_drafter_is_decoded_plainly_and_said(cli, stored):
    assert "no drafter is known" in cli("generate", "hello", "-m", stored[0], "-n", 4).err


def test_require_draft_refuses_plain_decoding(cli, stored):
    outcome = cli("generate", "hello", "-m", stored[0], "--require-draft")
    assert outcome.code == 1 and "--draft" in outcome.err


def test_a_closed_stdin_is_no_stdin(cli, stored, monkeypatch):
    from dflash2_mlx.cli import inputs

    monkeypatch.setattr(inputs.sys, "stdin", None)
    assert inputs.read_prompt("hello", None) == "hello"


def test_auto_is_the_default_block_size_and_may_be_said(cli, stored):
    outcome = json.loads(cli(*ask(stored, "hello", "--block-size", "auto", "--json")).out)
    assert "automatic" in outcome["stats"]["block_size_reason"]


@pytest.fixture
def standing_in(monkeypatch):
    """Puts a real file or pipe in the place of stdin."""
    from dflash2_mlx.cli import inputs

    monkeypatch.setattr(inputs, "PATIENCE_S", 0)
    opened = []

    def stand_in(descriptor):
        opened.append(os.fdopen(descriptor, encoding="utf-8"))
        monkeypatch.setattr(inputs.sys, "stdin", opened[-1])
        return inputs.read_prompt

    yield stand_in
    for stream in opened:
        stream.close()


def test_a_pipe_that_brings_something_follows_the_prompt(standing_in):
    reading, writing = os.pipe()
    os.write(writing, b"a diff\n")
    os.close(writing)
    assert standing_in(reading)("Explain:", None) == "Explain:\n\na diff"


def test_an_open_pipe_that_brings_nothing_is_left_out_and_said(standing_in, capsys):
    reading, writing = os.pipe()
    read = standing_in(reading)
    assert read("hello", None) == "hello"
    assert "nothing came on stdin" in capsys.readouterr().err
    os.write(writing, b"late")
    os.close(writing)
    assert read("hello", None, stdin=True) == "hello\n\nlate"


def test_the_input_of_a_loop_is_not_eaten(standing_in, tmp_path):
    path = tmp_path / "prompts"
    path.write_text("one\ntwo\n")
    descriptor = os.open(path, os.O_RDONLY)
    read = standing_in(descriptor)
    assert read("from the start:", None) == "from the start:\n\none\ntwo"
    os.lseek(descriptor, len("one\n"), os.SEEK_SET)  # as a shell's `read` leaves it
    assert read("one", None) == "one" and os.lseek(descriptor, 0, os.SEEK_CUR) == len("one\n")


@pytest.mark.parametrize("prompt", ["-", None])
def test_a_dash_or_no_prompt_reads_stdin(standing_in, prompt):
    reading, writing = os.pipe()
    os.write(writing, b"who are you?")
    os.close(writing)
    assert standing_in(reading)(prompt, None) == "who are you?"


def test_the_null_device_brings_nothing(standing_in):
    assert standing_in(os.open(os.devnull, os.O_RDONLY))("hello", None) == "hello"
