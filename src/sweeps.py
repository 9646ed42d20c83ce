"""What the jobs of a sweep are at: python src/sweeps.py [NAME] [watch=true]."""

from vitlab.commands import command

main = command("sweeps")

if __name__ == "__main__":
    main()
