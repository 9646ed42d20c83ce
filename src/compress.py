"""Make a finished run smaller and faster: python src/compress.py run=<run> max_drop=0.5."""

from vitlab.commands import command

main = command("compress")

if __name__ == "__main__":
    main()
