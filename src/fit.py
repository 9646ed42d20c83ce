"""Fit a classifier to a folder of images in some minutes: python src/fit.py data.source.root=DIR minutes=20."""

from vitlab.commands import command

main = command("fit")

if __name__ == "__main__":
    main()
