"""Classify new images: python src/predict.py run=<run folder or checkpoint> images=<file, folder or glob>."""

from vitlab.commands import command

main = command("predict")

if __name__ == "__main__":
    main()
