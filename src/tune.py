"""Which learning rate, and which batch: python src/tune.py, and all that src/train.py is to be given."""

from vitlab.commands import command

main = command("tune")

if __name__ == "__main__":
    main()
