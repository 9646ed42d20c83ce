"""Take a finished run to another library: python src/export.py run=<run> format=<timm|huggingface> output=<folder>."""

from vitlab.commands import command

main = command("export")

if __name__ == "__main__":
    main()
