"""Runs below a folder: python src/runs.py [FOLDER] where=[model.depth=12] sort=test/acc1."""

from vitlab.commands import command

main = command("runs")

if __name__ == "__main__":
    main()
