"""Serve a bundle over HTTP: python src/serve.py bundle=DIR."""

from vitlab.commands import command

main = command("serve")

if __name__ == "__main__":
    main()
