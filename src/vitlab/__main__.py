"""python -m vitlab: the same as the command vitlab."""

from vitlab.commands import main

main()
