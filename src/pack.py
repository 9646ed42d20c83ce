"""Pack a data set into a few large files: python src/pack.py data=<set> output=<folder>."""

from vitlab.commands import command

main = command("pack")

if __name__ == "__main__":
    main()
