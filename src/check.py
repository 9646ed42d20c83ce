"""Would it train, and at what cost: python src/check.py, and all that src/train.py is to be given."""

from vitlab.commands import command

main = command("check")

if __name__ == "__main__":
    main()
