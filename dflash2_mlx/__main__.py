"""`dflash2-mlx` and `python -m dflash2_mlx`: the command line, quiet when interrupted while it is still loading."""

import sys


def main() -> None:
    """Run the command line; see `dflash2_mlx.cli.main`."""
    try:
        from dflash2_mlx.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
