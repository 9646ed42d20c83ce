"""A finished run as a folder that is used without vitlab: graphs, labels, preprocessing, calibration, a model card."""
