"""Check that a run is what it says: python src/verify.py run=RUN."""

from vitlab.commands import command

main = command("verify")

if __name__ == "__main__":
    main()
