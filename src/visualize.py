"""Look into a model: python src/visualize.py run=<run folder or checkpoint> images=<file, folder or glob>."""

from vitlab.commands import command

main = command("visualize")

if __name__ == "__main__":
    main()
