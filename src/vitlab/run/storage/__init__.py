"""Make, lock and read the folder of a run; write its provenance and result; find where a command writes."""
