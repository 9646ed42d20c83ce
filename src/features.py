"""The features of images, as a file: python src/features.py run=<run or checkpoint> output=features.npz."""

from vitlab.commands import command

main = command("features")

if __name__ == "__main__":
    main()
