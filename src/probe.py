"""How much of the classes frozen features tell: python src/probe.py run=<run or checkpoint>, or model=… data=…."""

from vitlab.commands import command

main = command("probe")

if __name__ == "__main__":
    main()
