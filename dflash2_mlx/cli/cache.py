"""`dflash2-mlx cache`: what this package keeps on disk beside the models, and how to be rid of it. Knows no MLX."""

from dflash2_mlx.cli import options
from dflash2_mlx.cli.out import Out
from dflash2_mlx.store.hub import gigabytes
from dflash2_mlx.store.saved import remove_unused, saved_drafters


def cache(clean: options.Clean = False) -> None:
    """List the quantised drafters that are kept under DFLASH2_CACHE (~/.cache/dflash2-mlx), and which are of no use.

    A copy is of no use once its drafter has changed or is gone, or another version of MLX would quantise it anew.
    """
    out = Out()
    if clean:
        out.document(f"{gigabytes(remove_unused())} given back")
    saved = saved_drafters()
    for copy in saved:
        out.document(f"{gigabytes(copy.nbytes):>10}  {'used' if copy.used else 'of no use':<9}  {copy.folder}")
    unused = sum(copy.nbytes for copy in saved if not copy.used)
    if not saved:
        out.document("no quantised drafters are kept; `dflash2-mlx pull PAIR --draft-bits 4` keeps one")
    if unused:
        out.document(f"next  give {gigabytes(unused)} back: dflash2-mlx cache --clean")
