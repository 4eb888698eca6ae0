"""An opened pair -> a checked one in memory. Everything about it is checked before any weight is read. Knows mlx."""

from collections.abc import Mapping
from dataclasses import replace

import mlx.core as mx

from dflash2_mlx.config import LoadParams
from dflash2_mlx.loading.checks import check_fit, mlx_quantization, refuse_code, text_config
from dflash2_mlx.loading.drafters import finish_drafter, name_network
from dflash2_mlx.loading.pair import Pair
from dflash2_mlx.loading.target import lay_out_for_cpu, load_model
from dflash2_mlx.loading.tokenizer import end_tokens, load_tokenizer, sampling_defaults
from dflash2_mlx.memory.machine import probe
from dflash2_mlx.models.layers import DraftNetwork
from dflash2_mlx.store.checkpoint import read_json
from dflash2_mlx.store.opening import OpenedModel, OpenedPair, open_drafter, open_pair
from dflash2_mlx.store.pairs import target_and_drafter
from dflash2_mlx.targets.families import build_target, target_family
from dflash2_mlx.text.prompt import ChatFormat


def load_pair(params: LoadParams) -> Pair:
    """The pair that `params` names. Raises: LoadError and its kinds."""
    return load_opened(open_pair(params))


def load_opened(opened: OpenedPair) -> Pair:
    """The opened pair in memory. Raises: LoadError and its kinds, before weights are read if that can be told."""
    target = opened.target
    settings, kind = text_config(target), target.config.get("model_type")
    if target.is_there and target.config:  # what kind of model it is comes before what is wrong with its files
        refuse_code(target)
        target_family(kind)
        mlx_quantization(target)
    if target.fault:
        raise target.fault
    generation: Mapping[str, object] = {}
    if "generation_config.json" in target.files:
        generation = read_json(target.folder / "generation_config.json")
    defaults, tokenizer = sampling_defaults(opened, generation), load_tokenizer(target)
    network = _fitting_network(opened.drafter, opened) if opened.drafter else None
    model = load_model(target)
    lay_out_for_cpu(model)
    mx.eval(model)  # all of it, parameters or not: what stays lazy fails on another thread
    pair = Pair(
        opened=opened,
        target=build_target(model, kind, chip_family=probe().family),
        drafter=None,
        tokenizer=tokenizer,
        chat=ChatFormat(tokenizer),
        end_tokens=end_tokens(tokenizer, (target.config, settings, generation)),
        defaults=defaults,
    )
    return _drafting(pair, network) if network else pair


def with_drafter(pair: Pair, draft: str, draft_bits: int | None = None) -> Pair:
    """The same target, its weights held once, under another drafter: what compares drafters in one process.

    Raises: LoadError and its kinds.
    """
    params = LoadParams(pair.model_name, draft, draft_bits)
    name = target_and_drafter(params)[1]
    assert name
    opened = replace(pair.opened, params=params, drafter=open_drafter(name), drafting_off=None)
    assert opened.drafter
    return _drafting(replace(pair, opened=opened), _fitting_network(opened.drafter, opened))


def _fitting_network(drafter: OpenedModel, opened: OpenedPair) -> DraftNetwork:
    """The drafter's network, its config checked against the target's, no weight read."""
    if drafter.fault:
        raise drafter.fault
    assert drafter.drafter
    check_fit(drafter.drafter, text_config(opened.target), opened.target.folder)
    return name_network(drafter)


def _drafting(pair: Pair, network: DraftNetwork) -> Pair:
    """The pair whose opened drafter has this network."""
    opened = pair.opened.drafter
    assert opened and opened.drafter
    kind, taps = pair.opened.target.config.get("model_type"), opened.drafter.target_layer_ids
    target = build_target(pair.target.module, kind, taps, chip_family=probe().family)
    bits = pair.opened.params.bits_of_drafter(
        target_quantized=target.quantized, drafter_quantized=bool(opened.drafter.quantization)
    )
    drafter = finish_drafter(opened, network, target, bits)
    mx.clear_cache()  # buffers of tables that were laid out anew or quantised
    return replace(pair, target=target, drafter=drafter)
