"""Every kind of bad input: one line with what, why and what next; exit 1 (2 for usage); no traceback; no answer."""

import mlx.core as mx
import pytest

from folders import change_config, change_tensors, write_target


def refused(outcome, *words, code=1):
    """The outcome is one line on stderr that holds every word."""
    assert outcome.code == code and outcome.out == ""
    assert outcome.err.startswith("dflash2-mlx: ") and outcome.err.count("\n") == 1, outcome.err
    for word in words:
        assert word in outcome.err, outcome.err
    return True


def ask(pair, *args):
    return ("generate", "--model", pair[0], "--draft", pair[1], "hello", *args)


def test_a_missing_path(cli):
    assert refused(cli("generate", "hi", "--model", "./nowhere"), "nowhere", "no folder")


def test_a_file_as_model(cli, pair):
    assert refused(cli("generate", "hi", "--model", pair[0] / "config.json"), "is a file")


def test_a_repository_that_is_not_in_the_cache_is_not_downloaded(cli, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert refused(cli("generate", "hi", "--model", "someone/else@abc"), "dflash2-mlx pull someone/else@abc")


def test_a_drafter_given_as_model(cli, pair):
    assert refused(cli("generate", "hi", "--model", pair[1]), "is a drafter", "--draft")


def test_a_swapped_pair(cli, pair):
    assert refused(cli(*ask(pair[::-1])), "is a drafter", "--model")


def test_a_target_given_as_drafter(cli, pair):
    assert refused(cli("generate", "hi", "--model", pair[0], "--draft", pair[0]), "not a drafter")


@pytest.mark.parametrize("key", ["target_layer_ids", "mask_token_id", "block_size", "selector_rank"])
def test_a_missing_drafter_key(cli, pair, key):
    change_config(pair[1], dflash_config={key: None})
    assert refused(cli(*ask(pair)), "config.json", key)


def test_a_missing_dflash_config(cli, pair):
    change_config(pair[1], dflash_config={})
    path = pair[1] / "config.json"
    path.write_text(path.read_text().replace('"dflash_config"', '"other_config"'))
    assert refused(cli(*ask(pair)), "lacks", "dflash_config")


@pytest.mark.parametrize("taps", [[1, 3, 8], [-1, 3, 6], [1, 1, 6], [6, 3, 1], "all", []])
def test_invented_taps(cli, pair, taps):
    change_config(pair[1], dflash_config={"target_layer_ids": taps})
    assert refused(cli(*ask(pair)), "target_layer_ids")


@pytest.mark.parametrize(
    ("key", "value"), [("vocab_size", 1024), ("hidden_size", 128), ("num_target_layers", 9), ("num_target_layers", 7)]
)
def test_a_drafter_for_another_target(cli, pair, key, value):
    change_config(pair[1], **{key: value})
    assert refused(cli(*ask(pair)), key, str(value))


def test_a_mask_token_outside_the_vocabulary(cli, pair):
    change_config(pair[1], dflash_config={"mask_token_id": 512})
    assert refused(cli(*ask(pair)), "mask_token_id")


def test_taps_that_do_not_fit_fc(cli, pair):
    change_config(pair[1], dflash_config={"target_layer_ids": [1, 3]})
    assert refused(cli(*ask(pair)), "fc.weight", "[64, 192]", "[64, 128]")


def test_a_dropped_tensor(cli, pair):
    change_tensors(pair[1], {"layers.1.attention_conv.base_kernel": None})
    assert refused(cli(*ask(pair)), "1 missing", "layers.1.attention_conv.base_kernel")


def test_a_renamed_tensor(cli, pair):
    change_tensors(pair[1], {"norm.weight": "final.weight"})
    assert refused(cli(*ask(pair)), "missing (norm.weight)", "unexpected (final.weight)")


def test_an_extra_tensor(cli, pair):
    change_tensors(pair[1], {}, surplus=mx.zeros((2,)))
    assert refused(cli(*ask(pair)), "1 unexpected (surplus)")


def test_a_missing_shard(cli, pair, tmp_path):
    target = write_target(tmp_path / "sharded", shards=3)
    (target / "model-00002-of-00003.safetensors").unlink()
    assert refused(cli(*ask((target, pair[1]))), "model-00002-of-00003.safetensors", "missing")


def test_a_sharded_target_loads(cli, pair, tmp_path):
    assert cli(*ask((write_target(tmp_path / "sharded", shards=3), pair[1]), "-n", 3)).code == 0


@pytest.mark.parametrize("which", [0, 1])
def test_a_truncated_file(cli, pair, which):
    path = pair[which] / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert refused(cli(*ask(pair)), "the file is cut")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "empty"), (b"version https://git-lfs.github.com/spec/v1\n", "LFS"), (b"<!DOCTYPE html><html>", "web page")],
)
def test_something_else_than_weights(cli, pair, content, words):
    (pair[1] / "model.safetensors").write_bytes(content)
    assert refused(cli(*ask(pair)), words)


def test_no_weights_at_all(cli, pair):
    (pair[0] / "model.safetensors").rename(pair[0] / "model.gguf")
    assert refused(cli(*ask(pair)), ".gguf")


@pytest.mark.parametrize("method", ["compressed-tensors", "awq", "gptq", "fp8"])
def test_a_foreign_quantisation_format(cli, pair, method):
    change_config(pair[1], quantization_config={"quant_method": method})
    assert refused(cli(*ask(pair)), method, "--draft-bits")


def test_a_damaged_config(cli, pair):
    (pair[0] / "config.json").write_text("{")
    assert refused(cli(*ask(pair)), "config.json", "JSON")


def test_an_unknown_architecture(cli, pair):
    change_config(pair[0], model_type="mamba2")
    assert refused(cli(*ask(pair)), "mamba2", "roll back")


def test_a_target_with_missing_tensors(cli, pair):
    change_tensors(pair[0], {"language_model.model.norm.weight": None})
    assert refused(cli(*ask(pair)), "mlx-lm cannot load")


@pytest.mark.parametrize("prompt", ["", "   ", "\n"])
def test_an_empty_prompt(cli, prompt):
    assert refused(cli("generate", prompt), "empty")


def test_stdin_that_is_not_utf8(cli):
    assert refused(cli("generate", stdin=b"caf\xe9"), "UTF-8", "0xe9")


def test_a_prompt_longer_than_the_context(cli, pair):
    assert refused(cli(*ask(pair), stdin=b"a" * 5000), "prompt is too long", "> 4096 maximum")


def test_a_prompt_longer_than_what_the_tokenizer_calls_its_limit(cli):
    assert refused(cli("generate", "--model", "demo", stdin=b"a b " * 20000), "> 32768 maximum")


def test_a_block_size_above_the_trained_one(cli, pair):
    assert refused(cli(*ask(pair, "--block-size", 9)), "block size 9", "8", code=2)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--block-size", 0),
        ("--temperature", -1),
        ("--temperature", "nan"),
        ("--top-p", 1.5),
        ("--top-k", -2),
        ("--min-p", 2),
        ("--max-tokens", -1),
        ("--draft-bits", 5),
        ("--acceptance", "maybe"),
        ("--logit-bias", "x"),
        ("--logit-bias", "9999=1"),
        ("--stop", ""),
        ("--logprobs", 3),
        ("--tools", "nowhere.json"),
        ("--prompt-file", "nowhere.txt"),
        ("--reasoning", "enormous"),
    ],
)
def test_a_value_outside_its_range_is_a_usage_error(cli, pair, option, value):
    assert refused(cli(*ask(pair, option, value)), code=2)


def test_draft_and_no_draft_exclude_each_other(cli, pair):
    assert refused(cli(*ask(pair, "--no-draft")), "excludes", code=2)


@pytest.mark.parametrize("option", [("--draft-bits", 8), ("--draft-revision", "abc"), ("--require-draft",)])
def test_options_of_the_drafter_exclude_no_draft(cli, pair, option):
    assert refused(cli("generate", "hi", "-m", pair[0], "--no-draft", *option), "excludes", code=2)


def test_a_folder_has_no_revision(cli, pair):
    assert refused(cli(*ask(pair, "--draft-revision", "abc")), "has no revisions", code=2)


@pytest.mark.parametrize("arguments", [("\udcff",), ("hi", "--system", "\udcff"), ("hi", "--stop", "\udcff")])
def test_an_argument_that_is_not_utf8(cli, arguments):
    assert refused(cli("generate", *arguments), "not UTF-8")


def test_require_draft_refuses_a_block_of_one_row(cli, pair):
    assert refused(cli(*ask(pair, "--require-draft", "--block-size", 1)), "plain decoding", code=2)


@pytest.mark.parametrize("command", ["generate", "pull"])
def test_help_shows_that_a_name_may_carry_a_revision(cli, command):
    assert "owner/name[@revision]" in " ".join(cli(command, "--help").out.replace("│", " ").split())
