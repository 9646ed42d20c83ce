"""Compute the step in which a run diverged again: python src/replay.py run=RUN."""

from vitlab.commands import command

main = command("replay")

if __name__ == "__main__":
    main()
