"""Build a run, check it, store it, print it, and apply it once it is finished; a folder for each.

Each folder imports only from those before it: hardware, checks, storage, building, inference, printing.
"""
