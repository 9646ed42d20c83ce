"""Add to Hydra what vitlab needs. Hydra imports these files at every start: nothing heavy belongs here."""
