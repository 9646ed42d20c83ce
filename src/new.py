"""Write a folder for your own code: python src/new.py DIR."""

from vitlab.commands import command

main = command("new")

if __name__ == "__main__":
    main()
