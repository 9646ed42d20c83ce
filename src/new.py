"""A folder for code of one's own: python src/new.py DIR."""

from vitlab.commands import command

main = command("new")

if __name__ == "__main__":
    main()
