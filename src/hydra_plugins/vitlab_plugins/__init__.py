"""What vitlab adds to Hydra. Hydra imports these files at every start: nothing heavy belongs here."""
