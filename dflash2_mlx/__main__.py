"""`python -m dflash2_mlx`: the command line."""

from dflash2_mlx.cli.main import main

if __name__ == "__main__":
    main()
