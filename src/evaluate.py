"""Score a finished run on one of its splits: python src/evaluate.py run=<run folder or checkpoint> [split=val]."""

from vitlab.commands import command

main = command("evaluate")

if __name__ == "__main__":
    main()
