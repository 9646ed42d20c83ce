"""Explain a finished run on one page: python src/explain.py run=RUN images=FILES."""

from vitlab.commands import command

main = command("explain")

if __name__ == "__main__":
    main()
