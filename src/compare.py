"""Compare finished runs: python src/compare.py runs=[A,B], or sweep=NAME."""

from vitlab.commands import command

main = command("compare")

if __name__ == "__main__":
    main()
