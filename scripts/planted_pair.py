"""A pair of about 110 million parameters in float32 whose drafts are right as often as planned, made without training.

`python scripts/planted_pair.py OUT [--right SHARE] [--check] [--measure]` writes OUT/target (a Qwen3.5-type hybrid in
transformers' layout, which mlx-lm reads too), OUT/drafter (DFlash 2), OUT/dflash1 (the same without selector and
convolution, nearly always wrong) and OUT/misled (DFlash 2 with the drafts of that one). Random weights would accept
nothing, so the answer is planted: every sublayer's last projection is zero, the target's head maps each token of a
short cycle to the next one, and the drafter's codebooks hold the same pairs, some of them wrong. The work of a step is
that of any model of this size. The last line is JSON.
"""

import argparse
import json
import random
import shutil
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import mlx.core as mx
from mlx_lm.utils import load_tokenizer

from dflash2_mlx.api import stream_generate
from dflash2_mlx.config import EngineParams, LoadParams, SamplingParams, TextParams
from dflash2_mlx.events import Round
from dflash2_mlx.loading.load import load_pair, with_drafter
from dflash2_mlx.loading.pair import Pair

DEMO = Path(__file__).parents[1] / "dflash2_mlx" / "demo" / "target"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
TEXT = " one two three four five six seven eight nine ten eleven twelve"
VOCAB, MASK, END = 1536, 9, [2, 0]
HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 1024, 3072, 8, 8, 2, 128
KEY_HEADS, VALUE_HEADS, STATE_DIM, CONV = 8, 16, 64, 4
TAPS, RANK, TOP_K, CONV_GROUP, WINDOW = (1, 3, 6), 256, 16, 16, 2048
CERTAIN = 50.0  # what the codebooks add to the planted successor's score
QUESTION, ANSWER_ONLY = "Count.", TextParams(reasoning="off")
MEASURED = {"dflash1": "dflash1", "dflash1_again": "dflash1", "dflash2": "misled"}  # side by side, by folder
TIMED_TOKENS = 64  # of each answer that is timed
FEWEST_ROUNDS = 20  # that an interval can be told from

TEXT_CONFIG: dict[str, object] = {
    "model_type": "qwen3_5_text",
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "full_attention_interval": 4,
    "layer_types": ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(LAYERS)],
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "linear_num_key_heads": KEY_HEADS,
    "linear_num_value_heads": VALUE_HEADS,
    "linear_key_head_dim": STATE_DIM,
    "linear_value_head_dim": STATE_DIM,
    "linear_conv_kernel_dim": CONV,
    "max_position_embeddings": 32768,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": False,
    "dtype": "float32",
    "eos_token_id": END,
}


@dataclass(frozen=True)
class Plan:
    """What is planted: the cycle's tokens in order, and after which of them the drafter is wrong."""

    cycle: tuple[int, ...]
    wrong: frozenset[int]

    def following(self, token: int) -> int:
        """The target's token after `token`."""
        return self.cycle[(self.cycle.index(token) + 1) % len(self.cycle)]

    def proposed(self, token: int) -> int:
        """The drafter's token after `token`: one too far where it is wrong."""
        return self.following(self.following(token)) if token in self.wrong else self.following(token)

    def accepted(self, first: int, tokens: int, block_size: int) -> list[int]:
        """Accepted draft tokens of every round of an answer of `tokens` tokens that begins with `first`."""
        rounds, anchor, done = [], first, 1
        while done < tokens:
            drafted, accepted = min(block_size, tokens - done) - 1, 0
            while accepted < drafted and anchor not in self.wrong:
                anchor, accepted = self.following(anchor), accepted + 1
            anchor, done = self.following(anchor), done + accepted + 1
            rounds.append(accepted)
        return rounds


def planned(right: float) -> Plan:
    """The cycle of TEXT's tokens; a share of about 1 - `right` of its transitions wrong, evenly spread."""
    tokens = load_tokenizer(DEMO).encode(TEXT, add_special_tokens=False)
    cycle = tuple(dict.fromkeys(tokens))[:TOP_K]
    count = round(len(cycle) * (1 - right))
    return Plan(cycle, frozenset(cycle[i * len(cycle) // count] for i in range(count)) if count else frozenset())


def random_matrix(rows: int, columns: int) -> mx.array:
    """Random weights that keep the size of what they multiply."""
    return mx.random.normal((rows, columns)) / columns**0.5


def write_target(folder: Path, plan: Plan) -> tuple[mx.array, mx.array]:
    """The target's folder; the raw embedding and the head."""
    embedding, head = planted_tables(plan)
    weights = {"model.embed_tokens.weight": embedding, "lm_head.weight": head, "model.norm.weight": mx.zeros((HIDDEN,))}
    for number in range(LAYERS):
        prefix = f"model.layers.{number}."
        mixer = attention_weights() if number % 4 == 3 else recurrent_weights()
        weights.update({prefix + name: tensor for name, tensor in {**mixer, **mlp_weights()}.items()})
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{norm}.weight"] = mx.zeros((HIDDEN,))  # transformers stores w - 1
    config = {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5", "tie_word_embeddings": False}
    save(folder, weights, {**config, "eos_token_id": END, "text_config": TEXT_CONFIG})
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": False, "eos_token_id": END}))
    for name in TOKENIZER_FILES:
        shutil.copy(DEMO / name, folder / name)
    return embedding, head


def planted_tables(plan: Plan) -> tuple[mx.array, mx.array]:
    """Embedding and head [V, H]: after a cycle token its follower leads by about sqrt(H), after others any of them.

    The mask's row points at all of the cycle, so that its tokens are the drafter's candidates.
    """
    embedding = mx.random.normal((VOCAB, HIDDEN))
    head = 1e-3 * mx.random.normal((VOCAB, HIDDEN))
    for token in plan.cycle:
        head[plan.following(token)] = embedding[token] / HIDDEN**0.5
    embedding[MASK] = embedding[mx.array(plan.cycle)].sum(axis=0)
    return embedding, head


def attention_weights() -> dict[str, mx.array]:
    """Gated full attention."""
    return {
        "self_attn.q_proj.weight": random_matrix(2 * HEADS * HEAD_DIM, HIDDEN),
        "self_attn.k_proj.weight": random_matrix(KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.v_proj.weight": random_matrix(KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.o_proj.weight": mx.zeros((HIDDEN, HEADS * HEAD_DIM)),
        "self_attn.q_norm.weight": mx.zeros((HEAD_DIM,)),
        "self_attn.k_norm.weight": mx.zeros((HEAD_DIM,)),
    }


def recurrent_weights() -> dict[str, mx.array]:
    """A gated-delta layer, its convolution in transformers' layout [channels, 1, taps]."""
    values = VALUE_HEADS * STATE_DIM
    channels = 2 * KEY_HEADS * STATE_DIM + values
    return {
        "linear_attn.in_proj_qkv.weight": random_matrix(channels, HIDDEN),
        "linear_attn.in_proj_z.weight": random_matrix(values, HIDDEN),
        "linear_attn.in_proj_a.weight": random_matrix(VALUE_HEADS, HIDDEN),
        "linear_attn.in_proj_b.weight": random_matrix(VALUE_HEADS, HIDDEN),
        "linear_attn.conv1d.weight": mx.random.normal((channels, 1, CONV)) / CONV**0.5,
        "linear_attn.A_log": mx.log(mx.random.uniform(1, 16, (VALUE_HEADS,))),
        "linear_attn.dt_bias": mx.ones((VALUE_HEADS,)),
        "linear_attn.norm.weight": mx.ones((STATE_DIM,)),
        "linear_attn.out_proj.weight": mx.zeros((HIDDEN, values)),
    }


def mlp_weights() -> dict[str, mx.array]:
    """SwiGLU whose last projection is zero."""
    return {
        "mlp.gate_proj.weight": random_matrix(INTERMEDIATE, HIDDEN),
        "mlp.up_proj.weight": random_matrix(INTERMEDIATE, HIDDEN),
        "mlp.down_proj.weight": mx.zeros((HIDDEN, INTERMEDIATE)),
    }


def write_drafter(folder: Path, proposals: Mapping[int, int], embedding: mx.array, block_size: int) -> None:
    """A DFlash 2 drafter of one layer whose selector proposes a token after each of the cycle's."""
    weights = {
        "fc.weight": random_matrix(HIDDEN, len(TAPS) * HIDDEN),
        "hidden_norm.weight": mx.ones((HIDDEN,)),
        "norm.weight": mx.ones((HIDDEN,)),
        **{f"candidate_selector.{name}": tensor for name, tensor in selector_weights(proposals, embedding).items()},
    }
    layer = {
        **mlp_weights(),
        "input_layernorm.weight": mx.ones((HIDDEN,)),
        "post_attention_layernorm.weight": mx.ones((HIDDEN,)),
        "self_attn.q_proj.weight": random_matrix(HEADS * HEAD_DIM, HIDDEN),
        "self_attn.k_proj.weight": random_matrix(KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.v_proj.weight": random_matrix(KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.o_proj.weight": mx.zeros((HIDDEN, HEADS * HEAD_DIM)),
        "self_attn.q_norm.weight": mx.ones((HEAD_DIM,)),
        "self_attn.k_norm.weight": mx.ones((HEAD_DIM,)),
    }
    for name in ("attention_conv", "mlp_conv"):
        layer[f"{name}.base_kernel"] = mx.random.normal((2, 2, HIDDEN))
        layer[f"{name}.kernel_projection.weight"] = random_matrix(2 * 2 * HIDDEN // CONV_GROUP, HIDDEN)
    weights.update({f"layers.0.{name}": tensor for name, tensor in layer.items()})
    save(folder, weights, drafter_config("DFlash2DraftModel", block_size))


def selector_weights(proposals: Mapping[int, int], embedding: mx.array) -> dict[str, mx.array]:
    """Codebooks in which every cycle token's code points at the code of the token proposed after it.

    All mask rows have the same hidden state, h; the projection turns it into ones, so it does not change the scores.
    """
    row = embedding[MASK]
    hidden = row / mx.sqrt(mx.mean(row * row) + 1e-6)
    codes = mx.sign(mx.random.normal((VOCAB, RANK))) / RANK**0.5
    before = mx.zeros((VOCAB, RANK))
    for token, proposed in proposals.items():
        before[token] = CERTAIN * codes[proposed]
    return {
        "hidden_projection.weight": mx.broadcast_to(hidden / (hidden * hidden).sum(), (RANK, HIDDEN)),
        "predecessor_codebook": before,
        "successor_codebook": codes,
    }


def write_dflash1(folder: Path, drafter: Path, block_size: int) -> None:
    """The drafter without selector and convolution: a DFlash 1 drafter."""
    weights = mx.load(str(drafter / "model.safetensors"))
    assert isinstance(weights, dict)
    kept = {name: tensor for name, tensor in weights.items() if "conv" not in name and "selector" not in name}
    save(folder, kept, drafter_config("DFlashDraftModel", block_size))


def drafter_config(architecture: str, block_size: int) -> dict[str, object]:
    """The drafter's config.json in the published form."""
    own: dict[str, object] = {"block_size": block_size, "target_layer_ids": list(TAPS), "mask_token_id": MASK}
    if architecture == "DFlash2DraftModel":
        own |= {"selector_rank": RANK, "selector_top_k": TOP_K, "conv_kernel_size": 2, "conv_group_size": CONV_GROUP}
    return {
        "architectures": [architecture],
        "model_type": "qwen3",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "vocab_size": VOCAB,
        "num_target_layers": LAYERS,
        "max_position_embeddings": 32768,
        "layer_types": ["sliding_attention"],
        "sliding_window": WINDOW,
        "is_causal": False,
        "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"},
        "tie_word_embeddings": False,
        "dtype": "float32",
        "dflash_config": own,
    }


def save(folder: Path, weights: dict[str, mx.array], config: dict[str, object]) -> None:
    """Write weights and config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2))


def build(out: Path, right: float, block_size: int) -> Plan:
    """Write the four folders."""
    mx.random.seed(0)
    plan = planned(right)
    embedding, head = write_target(out / "target", plan)
    likeliest = int(mx.argmax(head @ embedding[MASK]).item())  # at every mask row: all that DFlash 1 ever proposes
    write_drafter(out / "drafter", {token: plan.proposed(token) for token in plan.cycle}, embedding, block_size)
    write_drafter(out / "misled", dict.fromkeys(plan.cycle, likeliest), embedding, block_size)
    write_dflash1(out / "dflash1", out / "drafter", block_size)
    return plan


def rounds_of(pair: Pair, tokens: int, block_size: int | None) -> Iterator[Round]:
    """The rounds of a greedy answer of so many tokens, as they come."""
    engine = EngineParams(max_tokens=tokens, block_size=block_size)
    events = stream_generate(pair, QUESTION, sampling=SamplingParams(), engine=engine, text=ANSWER_ONLY)
    return (event for event in events if isinstance(event, Round))


def check(out: Path, plan: Plan, tokens: int, block_size: int) -> list[str]:
    """What is not as planted; empty where all of it is."""
    pair = load_pair(LoadParams(str(out / "target"), str(out / "drafter")))
    plain = [token for done in rounds_of(pair, tokens, 1) for token in done.tokens]
    problems = []
    if plain[0] not in plan.cycle or any(b != plan.following(a) for a, b in pairwise(plain)):
        return [f"greedy text is not the cycle: {pair.tokenizer.decode(plain[:20])!r}"]
    for drafter in ("drafter", "dflash1"):
        pair = with_drafter(pair, str(out / drafter))
        for width in sorted({2, 5, block_size}):
            rounds = list(rounds_of(pair, tokens, width))
            if [token for done in rounds for token in done.tokens] != plain:
                problems.append(f"{drafter}, block {width}: another text than plain decoding's")
            accepted = [done.accepted for done in rounds[1:]]
            if drafter == "drafter" and accepted != plan.accepted(plain[0], tokens, width):
                problems.append(f"block {width}: accepted {accepted[:12]}, planted otherwise")
    return problems


def measure(out: Path, block_size: int, rounds: int) -> dict[str, float]:
    """Seconds of a round with each drafter, side by side, and the share that selector and convolution add.

    cost: the median over the rounds of DFlash 2's time over DFlash 1's next to it, less one; low and high: its 95 %
    interval. The same for a second copy of DFlash 1, whose true cost is nothing: what the method itself gets wrong.
    Where weights lie in memory changes the time too, so the drafters are loaded again with every answer.
    """
    first = load_pair(LoadParams(str(out / "target"), str(out / MEASURED["dflash1"])))
    rows: list[dict[str, float]] = []
    while len(rows) < rounds:
        pairs = {name: with_drafter(first, str(out / MEASURED[name])) for name in shuffled(MEASURED)}
        rows += side_by_side(pairs, block_size)
    found = {name: statistics.median(row[name] for row in rows) for name in ("dflash1", "dflash2")}
    edge = round((len(rows) - 1.96 * len(rows) ** 0.5) / 2)  # ranks of the median's interval, whatever the distribution
    for name, label in (("dflash2", "cost"), ("dflash1_again", "control")):
        shares = sorted(row[name] / row["dflash1"] - 1 for row in rows)
        found |= {label: statistics.median(shares), f"{label}_low": shares[edge], f"{label}_high": shares[-edge - 1]}
    return found


def side_by_side(pairs: dict[str, Pair], block_size: int) -> list[dict[str, float]]:
    """Seconds of the rounds of one answer of each pair, one round of each at a time, in an order drawn every time.

    A round's cost depends on its tokens and on what it and the round before it commit, so all pairs draft the same
    (hence the misled drafter), and only rounds that commit one token after one that did are kept. All that a round
    launches is waited for before the next begins.
    """
    answers = {name: rounds_of(pair, TIMED_TOKENS, block_size) for name, pair in pairs.items()}
    before, rows = dict.fromkeys(pairs, 1), []
    while True:
        row = {}
        for name in shuffled(pairs):
            began = perf_counter()
            done = next(answers[name], None)
            mx.synchronize()
            if done is None:
                return rows
            if done.drafted == block_size - 1 and done.accepted == before[name] == 0:
                row[name] = perf_counter() - began
            before[name] = done.accepted if done.drafted else 1
        if len(row) == len(pairs):
            rows.append(row)


def shuffled(names: Iterable[str]) -> list[str]:
    """The names in a random order."""
    order = list(names)
    random.shuffle(order)
    return order


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write")
    parser.add_argument("--right", type=float, default=0.8, help="share of the drafter's pairs that are right (0.8)")
    parser.add_argument("--block-size", type=int, default=8, help="rows of the drafter's block (8)")
    parser.add_argument("--tokens", type=int, default=48, help="tokens of the answers of --check (48)")
    parser.add_argument("--check", action="store_true", help="hold the written pair against the plan")
    parser.add_argument("--measure", action="store_true", help="time what selector and convolution cost of a round")
    parser.add_argument("--rounds", type=int, default=600, help="rounds of --measure with each drafter (600)")
    options = parser.parse_args()
    if options.measure and not 2 <= options.block_size <= TIMED_TOKENS // 4:
        parser.error(f"--measure needs a --block-size from 2 to {TIMED_TOKENS // 4}: others leave none to compare.")
    if options.rounds < FEWEST_ROUNDS:
        parser.error(f"--rounds {options.rounds} is too few for an interval: give {FEWEST_ROUNDS} or more.")
    plan = build(options.out, options.right, options.block_size)
    accepted = plan.accepted(plan.cycle[0], 10_000, options.block_size)
    result: dict[str, object] = {
        "cycle": len(plan.cycle),
        "wrong": len(plan.wrong),
        "tokens_per_round": round(1 + statistics.mean(accepted), 3),
    }
    print(f"wrote {options.out}: a cycle of {result['cycle']} tokens, {result['wrong']} of the drafter's pairs wrong")
    print(f"planted: {result['tokens_per_round']} tokens per round at block {options.block_size}")
    problems: Sequence[str] = ()
    if options.check:
        problems = check(options.out, plan, options.tokens, options.block_size)
        print("\n".join(problems) or "the text, every round and both drafters are as planted")
    if options.measure:
        found = measure(options.out, options.block_size, options.rounds)
        print(
            f"a round of {options.block_size} rows: DFlash 1 {found['dflash1'] * 1000:.2f} ms, DFlash 2 "
            f"{found['dflash2'] * 1000:.2f} ms: selector and convolution cost {found['cost']:+.1%} "
            f"(95 % from {found['cost_low']:+.1%} to {found['cost_high']:+.1%}); DFlash 1 beside itself "
            f"{found['control']:+.1%} (from {found['control_low']:+.1%} to {found['control_high']:+.1%})"
        )
        result["measured"] = found
    print(json.dumps({**result, "problems": list(problems)}))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
