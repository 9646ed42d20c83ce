"""Make a finished model smaller and faster: int8 weights, merged tokens, and what each costs and saves."""
